"""Locate the files of a policy on this machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.config.model import Model
from clawpipe.core.config.quantization import Quantization
from clawpipe.core.conversation.messages import ToolCallFormat
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.refs import ModelRef
from clawpipe.errors import DataError
from clawpipe.model.policy.base import RANDOM, is_ready, resolve_base

_BUILT_IN = {"smollm2-135m-instruct": ("HuggingFaceTB/SmolLM2-135M-Instruct", "apache-2.0"), RANDOM: (RANDOM, "apache-2.0")}
_LICENCE = re.compile(r"^license:[ \t]*['\"]?([A-Za-z0-9.-]+)", re.MULTILINE)
_UNKNOWN_LICENCE = "other"


class PolicySpec(BaseModel):
    """The directories and settings with which a policy is loaded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: str = Field(description="directory of the weights and the tokenizer: the base model, or whole trained weights")
    adapter: str | None = Field(description="directory of the adapter")
    dtype: str
    tool_call_format: ToolCallFormat
    quantization: Quantization = Field(default="none", description="quantization of the weights in `base`")
    policy_version: str
    elsewhere: str | None = Field(default=None, description="name of the base at the service that holds its weights; null: here")
    remote: str | None = Field(default=None, description="where a service keeps the adapter for sampling")


def untrained_spec(model: Model) -> PolicySpec:
    """Return the base model in a night's settings as a policy, fetched or converted if needed."""
    return PolicySpec(
        base=str(resolve_base(model.base, model.elsewhere).path),
        adapter=None,
        dtype=model.dtype,
        tool_call_format=model.tool_call_format,
        quantization=model.quantization,
        policy_version="",
        elsewhere=model.elsewhere,
    )


def policy_spec(store: Store, policy: ModelRef) -> PolicySpec:
    """Return the directories of a policy's base and adapter, or of its whole weights, which need no base.

    Raises:
        DataError: the base model is not the one that the policy was trained on, or the artifact is missing or damaged.
    """
    return PolicySpec(
        base=str(store.require(policy)) if policy.weights else _base(policy),
        adapter=str(store.require(policy)) if policy.adapter else None,
        dtype=policy.dtype,
        tool_call_format=policy.tool_call_format,
        quantization=cast(Quantization, policy.quantization),
        policy_version=policy.policy_version,
        elsewhere=policy.elsewhere,
        remote=policy.remote,
    )


def _base(policy: ModelRef) -> str:
    base = resolve_base(policy.base_name, policy.elsewhere)
    if base.digest != policy.base:
        raise DataError(
            f"the base model {policy.base_name!r} is not the one that policy {policy.policy_version} was trained on",
            str(base.path),
            f"restore the base with digest {policy.base[:12]}, or start a new night from this one",
        )
    return str(base.path)


def base_name(name: str) -> str:
    """Return a base model's name without directories of this machine."""
    return Path(name).name if Path(name).expanduser().is_absolute() else name


@dataclass(frozen=True)
class Origin:
    """Origin of a base model.

    Attributes:
        title: public name: a hub id, or the name of the directory.
        location: what transformers and peft load it from: a hub id, or a local directory.
        revision: commit of a hub model; None for a directory.
        licence: as the model card names it; "other" if it names none.
    """

    title: str
    location: str
    revision: str | None
    licence: str


def origin_of(name: str, elsewhere: str | None = None) -> Origin | None:
    """Return the origin of a base model that is on this machine, or at a service under the name `elsewhere`; else None."""
    if elsewhere:
        return Origin(elsewhere, elsewhere, None, _licence(resolve_base(name, elsewhere).path))
    if not is_ready(name):
        return None
    path = resolve_base(name).path
    if name in _BUILT_IN:  # converted here, so the weights differ from the hub's
        title, licence = _BUILT_IN[name]
        return Origin(title, str(path), None, licence)
    if not Path(name).expanduser().is_dir():
        return Origin(name, name, path.name, _licence(path))
    return Origin(path.name, str(path), None, _licence(path))


def _licence(path: Path) -> str:
    """Read the licence from the front matter of the model card beside the weights."""
    try:
        front = (path / "README.md").read_text(encoding="utf-8", errors="replace").partition("---\n")[2].partition("\n---")[0]
    except OSError:
        return _UNKNOWN_LICENCE
    found = _LICENCE.search(front)
    return found[1] if found else _UNKNOWN_LICENCE
