"""Where the files of a policy lie on this machine."""

from __future__ import annotations

from typing import cast

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.config.night import Model
from clawpipe.config.quantization import Quantization
from clawpipe.errors import DataError
from clawpipe.policy.base import resolve_base
from clawpipe.policy.calls import Style
from clawpipe.store.artifacts import Store
from clawpipe.store.refs import ModelRef


class PolicySpec(BaseModel):
    """A policy on disk, ready to be loaded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: str = Field(description="directory of the weights and the tokenizer: the base model's, or that of whole trained weights")
    adapter: str | None = Field(description="directory of the adapter")
    dtype: str
    calls: Style
    quantization: Quantization = Field(default="none", description="how the weights in `base` are held")
    policy_version: str


def untrained_spec(model: Model) -> PolicySpec:
    """The base model that a night's settings name, fetched or converted if it is not there yet."""
    return PolicySpec(
        base=str(resolve_base(model.base).path),
        adapter=None,
        dtype=model.dtype,
        calls=model.calls,
        quantization=model.quantization,
        policy_version="",
    )


def policy_spec(store: Store, policy: ModelRef) -> PolicySpec:
    """Locate base and adapter, or whole weights, which need no base.

    Raises:
        DataError: the base that its name resolves to is not the one it stands on, or the artefact is missing or damaged.
    """
    return PolicySpec(
        base=str(store.require(policy)) if policy.weights else _base(policy),
        adapter=str(store.require(policy)) if policy.adapter else None,
        dtype=policy.dtype,
        calls=policy.calls,
        quantization=cast(Quantization, policy.quantization),
        policy_version=policy.policy_version,
    )


def _base(policy: ModelRef) -> str:
    base = resolve_base(policy.base_name)
    if base.digest != policy.base:
        raise DataError(
            f"the base model {policy.base_name!r} is not the one that policy {policy.policy_version} stands on",
            str(base.path),
            f"restore the base with digest {policy.base[:12]}, or start a new night from this one",
        )
    return str(base.path)
