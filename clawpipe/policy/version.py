"""The policy version: what exactly produced a token."""

from __future__ import annotations

from collections.abc import Iterable

from clawpipe.policy.calls import Style
from clawpipe.store.digests import sha256_json
from clawpipe.store.refs import ModelRef

RENDERER_VERSION = 1  # raise it with every change of what clawpipe.policy.renderer or .calls makes of a conversation


def renderer_digest(calls: Style) -> str:
    """Digest of how conversations become tokens; the tokenizer's own files are part of the base's digest."""
    return sha256_json({"calls": calls, "version": RENDERER_VERSION})[:16]


def policy_version(base_digest: str, adapter_digest: str | None, calls: Style) -> str:
    """Digest (16 hex digits) of base weights, adapter and renderer; any of them changed is another policy."""
    return sha256_json({"base": base_digest, "adapter": adapter_digest, "renderer": renderer_digest(calls)})[:16]


def base_ref(name: str, digest: str, calls: Style, dtype: str) -> ModelRef:
    """The untrained policy."""
    return ModelRef(
        name="base",
        digest=digest,
        base=digest,
        base_name=name,
        calls=calls,
        dtype=dtype,
        policy_version=policy_version(digest, None, calls),
        adapter=False,
    )


def adapter_ref(start: ModelRef, digest: str, parents: Iterable[str]) -> ModelRef:
    """The policy that an adapter artefact makes of the base that `start` stands on."""
    return start.model_copy(
        update={
            "name": "adapter",
            "digest": digest,
            "parents": tuple(sorted(set(parents))),
            "policy_version": policy_version(start.base, digest, start.calls),
            "adapter": True,
        }
    )
