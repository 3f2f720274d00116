"""The policy version: a digest of everything that decides a policy's tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clawpipe.core.conversation.messages import ToolCallFormat
from clawpipe.core.store.digests import sha256_json
from clawpipe.core.store.refs import ModelRef

RENDERER_VERSION = 1  # raise it when clawpipe.model.policy.renderer or .calls renders a conversation differently


def renderer_digest(tool_call_format: ToolCallFormat) -> str:
    """Return the digest of how conversations become tokens; the tokenizer's files are part of the base's digest."""
    return sha256_json({"calls": tool_call_format, "version": RENDERER_VERSION})[:16]


def policy_version(policy: ModelRef) -> str:
    """Return the digest (16 hex digits) of base weights, adapter or whole weights, quantization and renderer: a change of any
    makes another policy."""
    parts = {
        "base": policy.base,
        "adapter": policy.digest if policy.adapter else None,
        "renderer": renderer_digest(policy.tool_call_format),
    }
    if policy.weights:
        parts["weights"] = policy.digest
    if policy.quantization != "none":
        parts["quantization"] = policy.quantization
    return sha256_json(parts)[:16]


def base_ref(
    name: str,
    digest: str,
    tool_call_format: ToolCallFormat,
    dtype: str,
    quantization: str = "none",
    elsewhere: str | None = None,
) -> ModelRef:
    """Return the untrained policy."""
    ref = ModelRef(
        name="base",
        digest=digest,
        base=digest,
        base_name=name,
        tool_call_format=tool_call_format,
        dtype=dtype,
        policy_version="",
        adapter=False,
        quantization=quantization,
        elsewhere=elsewhere,
    )
    return _versioned(ref)


def adapter_ref(start: ModelRef, digest: str, parents: Iterable[str], remote: str | None = None) -> ModelRef:
    """Return the policy of an adapter artifact on the base of `start`, with the quantization of `start`.

    Args:
        remote: where a service keeps the adapter for sampling. The adapter's bytes decide the version; the place does not.
    """
    return _derived(start, "adapter", digest, parents, adapter=True, weights=False, remote=remote)


def weights_ref(start: ModelRef, digest: str, parents: Iterable[str]) -> ModelRef:
    """Return the policy of an artifact of whole weights, in full precision, derived from the base of `start`."""
    return _derived(start, "model", digest, parents, adapter=False, weights=True, quantization="none", remote=None)


def quantized_ref(policy: ModelRef, quantization: str) -> ModelRef:
    """Return the policy with the same weights under another quantization."""
    return _versioned(policy.model_copy(update={"quantization": quantization}))


def _derived(start: ModelRef, name: str, digest: str, parents: Iterable[str], **changes: Any) -> ModelRef:
    origin = {"name": name, "digest": digest, "parents": tuple(sorted(set(parents)))}
    return _versioned(start.model_copy(update=origin | changes))


def _versioned(policy: ModelRef) -> ModelRef:
    return policy.model_copy(update={"policy_version": policy_version(policy)})
