"""Policy versions: which changes make another policy."""

import hashlib
import json

import pytest

from clawpipe.core.store.digests import sha256_json
from clawpipe.model.policy.version import adapter_ref, base_ref, policy_version, quantized_ref, renderer_digest, weights_ref

BASE = base_ref("tiny", "b" * 64, "pythonic", "float32")


def by_hand(**parts):
    parts = {"base": "b" * 64, "adapter": None, "renderer": renderer_digest("pythonic")} | parts
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def test_the_version_covers_base_adapter_renderer_and_exceptions():
    adapter = adapter_ref(BASE, "a" * 64, [])
    assert BASE.policy_version == by_hand()
    assert adapter.policy_version == by_hand(adapter="a" * 64)
    assert weights_ref(adapter, "c" * 64, []).policy_version == by_hand(weights="c" * 64)
    assert quantized_ref(BASE, "nf4").policy_version == by_hand(quantization="nf4")
    assert quantized_ref(quantized_ref(BASE, "nf4"), "none") == BASE


def test_adapters_keep_their_quantization_and_merged_have_none():
    adapter = adapter_ref(base_ref("tiny", "b" * 64, "pythonic", "float32", "nf4"), "a" * 64, [])
    assert adapter.policy_version == by_hand(adapter="a" * 64, quantization="nf4")
    merged = weights_ref(adapter, "c" * 64, ["a" * 64])
    assert (merged.quantization, merged.adapter, merged.weights, merged.name) == ("none", False, True, "model")
    assert merged.parents == ("a" * 64,)


@pytest.mark.parametrize(
    "change", [{"quantization": "int8"}, {"tool_call_format": "hermes"}, {"digest": "d" * 64, "adapter": True}]
)
def test_another_policy_has_another_version(change):
    assert policy_version(BASE.model_copy(update=change)) != BASE.policy_version


@pytest.mark.parametrize("other", [quantized_ref(BASE, "int8"), BASE.model_copy(update={"dtype": "bfloat16"})])
def test_steps_tell_apart_policies_of_the_same_weights(other):
    assert other.digest == BASE.digest
    assert sha256_json(other) != sha256_json(BASE)
    assert sha256_json(BASE.model_copy(update={"parents": ("e" * 64,)})) == sha256_json(BASE)
