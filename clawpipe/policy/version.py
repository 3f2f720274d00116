"""The policy version: what exactly produced a token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clawpipe.policy.calls import Style
from clawpipe.store.digests import sha256_json
from clawpipe.store.refs import ModelRef

RENDERER_VERSION = 1  # raise it with every change of what clawpipe.policy.renderer or .calls makes of a conversation


def renderer_digest(calls: Style) -> str:
    """Digest of how conversations become tokens; the tokenizer's own files are part of the base's digest."""
    return sha256_json({"calls": calls, "version": RENDERER_VERSION})[:16]


def policy_version(policy: ModelRef) -> str:
    """Digest (16 hex digits) of base weights, adapter or whole weights, quantization and renderer; any of them changed is
    another policy. It follows from everything else that the ref says."""
    parts = {"base": policy.base, "adapter": policy.digest if policy.adapter else None, "renderer": renderer_digest(policy.calls)}
    if policy.weights:
        parts["weights"] = policy.digest
    if policy.quantization != "none":
        parts["quantization"] = policy.quantization
    return sha256_json(parts)[:16]


def base_ref(name: str, digest: str, calls: Style, dtype: str, quantization: str = "none") -> ModelRef:
    """The untrained policy."""
    ref = ModelRef(
        name="base",
        digest=digest,
        base=digest,
        base_name=name,
        calls=calls,
        dtype=dtype,
        policy_version="",
        adapter=False,
        quantization=quantization,
    )
    return _versioned(ref)


def adapter_ref(start: ModelRef, digest: str, parents: Iterable[str]) -> ModelRef:
    """The policy that an adapter artefact makes of the base that `start` stands on, held as `start` holds it."""
    return _made(start, "adapter", digest, parents, adapter=True, weights=False)


def weights_ref(start: ModelRef, digest: str, parents: Iterable[str]) -> ModelRef:
    """The policy that an artefact of whole weights is, in full precision; it came of the base that `start` stands on."""
    return _made(start, "model", digest, parents, adapter=False, weights=True, quantization="none")


def quantized_ref(policy: ModelRef, quantization: str) -> ModelRef:
    """The same weights, held in another way when they are loaded."""
    return _versioned(policy.model_copy(update={"quantization": quantization}))


def _made(start: ModelRef, name: str, digest: str, parents: Iterable[str], **changes: Any) -> ModelRef:
    origin = {"name": name, "digest": digest, "parents": tuple(sorted(set(parents)))}
    return _versioned(start.model_copy(update=origin | changes))


def _versioned(policy: ModelRef) -> ModelRef:
    return policy.model_copy(update={"policy_version": policy_version(policy)})
