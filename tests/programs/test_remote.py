"""Programs whose answers a vLLM server samples: a fake that speaks its protocol in front of the embedded engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawpipe.core.config.engine import EngineSpec
from clawpipe.errors import ClawpipeError
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.spec import PolicySpec
from tests import fake_vllm
from tests.fake_vllm import FakeVllm, serving
from tests.programs.conftest import Play


@pytest.fixture
def fake(policy: PolicySpec) -> FakeVllm:
    return FakeVllm(Path(policy.base))


def test_a_servers_turns_are_recorded_as_the_models(play: Play, loop: list[str], policy: PolicySpec, fake: FakeVllm):
    with serving(fake) as url:
        rows = play(loop, items=4, group=2, engine=EngineSpec(name="vllm", url=(url,)))
    assert [row["error"] for row in rows] == [None] * len(rows)
    assert fake.asked.count("/inference/v1/generate") == 16  # two turns of eight episodes
    engine = EmbeddedEngine(Path(policy.base), None, device="cpu")
    for row in rows:
        assert json.loads(row["extra"])["engine"]["name"] == "vllm"
        plain = [0.0] * row["prompt_tokens"] + engine.score(row["token_ids"], row["prompt_tokens"])
        assert row["logprobs"] == pytest.approx([a * b for a, b in zip(plain, row["loss_mask"], strict=True)], abs=1e-4)


def test_two_servers_share_the_programs(play: Play, loop: list[str], policy: PolicySpec, fake: FakeVllm):
    other = FakeVllm(Path(policy.base))
    with serving(fake) as one, serving(other) as two:
        rows = play(loop, items=4, group=2, engine=EngineSpec(name="vllm", url=(one, two)))
    assert [row["error"] for row in rows] == [None] * len(rows)
    asked = [server.asked.count("/inference/v1/generate") for server in (fake, other)]
    assert (sum(asked), min(asked) > 0) == (16, True)


def test_a_broken_answer_ends_the_shard_in_one_line(play: Play, loop: list[str], fake: FakeVllm):
    fake.faults.append(fake_vllm.short)
    with serving(fake) as url, pytest.raises(ClawpipeError, match="log-prob") as refused:
        play(loop, items=2, engine=EngineSpec(name="vllm", url=(url,)))
    assert "\n" not in refused.value.what
