"""Where the files of a policy lie on this machine."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.errors import DataError
from clawpipe.policy.base import resolve_base
from clawpipe.policy.calls import Style
from clawpipe.store.artifacts import Store
from clawpipe.store.refs import ModelRef


class PolicySpec(BaseModel):
    """A policy on disk, ready to be loaded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: str = Field(description="directory of the base model")
    adapter: str | None = Field(description="directory of the adapter")
    dtype: str
    calls: Style
    policy_version: str


def policy_spec(store: Store, policy: ModelRef) -> PolicySpec:
    """Locate base and adapter.

    Raises:
        DataError: the base that its name resolves to is not the one it stands on, or the adapter is missing or damaged.
    """
    base = resolve_base(policy.base_name)
    if base.digest != policy.base:
        raise DataError(
            f"the base model {policy.base_name!r} is not the one that policy {policy.policy_version} stands on",
            str(base.path),
            f"restore the base with digest {policy.base[:12]}, or start a new night from this one",
        )
    return PolicySpec(
        base=str(base.path),
        adapter=str(store.require(policy)) if policy.adapter else None,
        dtype=policy.dtype,
        calls=policy.calls,
        policy_version=policy.policy_version,
    )
