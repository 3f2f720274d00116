"""A model version that can be served."""

from __future__ import annotations

from dataclasses import dataclass

from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.model.policy.spec import PolicySpec

BASE = "base"  # the version of a base model
ADAPTER = "adapter"  # the version of an adapter that no registry holds


@dataclass(frozen=True)
class Served:
    """A model version on this machine.

    Attributes:
        digest: digest of the evaluated artifact.
        tools, preamble: tools and preamble of the model's episodes; shown to clients, never added to a request.
        environment: name of the environment that it was trained in; "" for a base model.
    """

    name: str
    version: str
    digest: str
    spec: PolicySpec
    tools: tuple[ToolSpec, ...] = ()
    preamble: tuple[Message, ...] = ()
    environment: str = ""

    @property
    def is_base(self) -> bool:
        """Whether it is a base model, which no registry holds."""
        return self.version == BASE
