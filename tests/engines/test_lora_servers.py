"""vLLM and SGLang as engines, against fakes that speak their protocols in front of the embedded engine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from clawpipe.core.config.engine import KEYS, EngineSpec
from clawpipe.core.config.night import Generation, NightConfig
from clawpipe.core.store.digests import canonical
from clawpipe.errors import BusyError, ConfigError, DataError
from clawpipe.model.engines.base import Sampling, open_engine
from clawpipe.model.engines.lora_servers import LoraServers
from clawpipe.model.engines.vllm import VllmEngine
from clawpipe.model.policy.agreement import OTHER_SERVER, Agreement, require_agreement
from clawpipe.model.policy.load import load_policy
from clawpipe.model.policy.probe import probe_for
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.play.rollouts.generate import engine_bound
from clawpipe.play.workers.compare import compare_engine
from tests import fake_sglang, fake_vllm
from tests.fake_sglang import FakeSglang
from tests.fake_vllm import FakeVllm, serving

PROMPTS = [[65, 66, 67], [65, 66], [70, 71, 72, 73]]
SAMPLING = Sampling(0.7, 5)
FAKES = {"vllm": FakeVllm, "sglang": FakeSglang}
RESERVED = {"vllm": 0, "sglang": 6}  # tokens of the context that no request may fill
VERSIONS = {"vllm": "0.32.0-fake", "sglang": "0.5.23-fake"}
FAULTS = {"vllm": fake_vllm, "sglang": fake_sglang}


@pytest.fixture(params=["vllm", "sglang"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def fake(kind: str, policy: PolicySpec) -> FakeVllm:
    return FAKES[kind](Path(policy.base))


def test_turns_are_those_of_the_model_behind_the_server(opened, kind, fake, policy):
    own = open_engine(EngineSpec(), policy, "cpu")
    with serving(fake) as url:
        there = opened(kind, url, policy)
        assert there.context == own.context - RESERVED[kind]
        talks = [engine.begin(PROMPTS) for engine in (own, there)]
        for seeds in ({0: 3, 1: 4, 2: 2**62 + 1}, {1: 5, 2: 6}):
            here, away = (talk.sample(seeds, SAMPLING) for talk in talks)
            assert {row: turn.ids for row, turn in here.items()} == {row: turn.ids for row, turn in away.items()}
            for row, turn in here.items():
                assert away[row].logprobs == pytest.approx(turn.logprobs, abs=1e-4)
            for talk in talks:
                talk.extend({1: [80, 81], 2: [82]})


def test_log_probs_agree_with_the_models_forward(opened, kind, fake, policy):
    with serving(fake) as url:
        found = _compared(opened(kind, url, policy), policy)
    assert found.largest < 1e-3
    assert (found.kind, found.layout) == ("tempered", "apart")


def test_raw_log_probs_end_in_one_line_that_says_so(opened, kind, fake, policy):
    fake.raw = True
    with serving(fake) as url, pytest.raises(DataError, match=r"engine's log-probs are \S+ nats off .* raw ones") as refused:
        require_agreement(
            _compared(opened(kind, url, policy), policy), engine_bound(policy, EngineSpec(name=kind, url=url)), url, OTHER_SERVER
        )
    assert "--logprobs-mode processed_logprobs" in refused.value.fix
    assert "\n" not in refused.value.what


def test_a_stale_adapter_and_another_model_end_in_one_line(opened, kind, fake, policy, adapter):
    fake.stale = True
    adapted = policy.model_copy(update={"adapter": str(adapter)})
    with serving(fake) as url, pytest.raises(DataError, match="nats off") as refused:
        require_agreement(
            _compared(opened(kind, url, adapted), adapted), engine_bound(policy, EngineSpec(name=kind, url=url)), url, OTHER_SERVER
        )
    assert "adapter" in refused.value.fix


def test_an_adapter_is_loaded_by_its_versions_name(opened, kind, fake, policy, adapter):
    adapted = policy.model_copy(update={"adapter": str(adapter)})
    with serving(fake) as url:
        engine = opened(kind, url, adapted)
        assert fake.held == {f"clawpipe-{policy.policy_version}": str(adapter)}
        assert _compared(engine, adapted).largest < 1e-3
        fake.held.clear()  # another night has unloaded it
        again = opened(kind, url, adapted)
        engine.begin(PROMPTS).sample({0: 1}, SAMPLING)
        again.close()
        assert fake.held == {}


def test_a_server_that_takes_no_adapter_says_how_to_start_it(opened, kind, fake, policy, adapter):
    fake.takes_adapters = False
    adapted = policy.model_copy(update={"adapter": str(adapter)})
    with serving(fake) as url, pytest.raises(ConfigError, match="does not load the adapter") as refused:
        opened(kind, url, adapted)
    assert "--enable-lora" in refused.value.fix


@pytest.mark.parametrize("faults", [(fake_vllm.busy,) * 2, (fake_vllm.broken,), (fake_vllm.cut,), (fake_vllm.slow,)])
def test_a_fault_that_passes_changes_no_turn(opened, kind, fake, policy, faults):
    with serving(fake) as url:
        engine = opened(kind, url, policy, timeout=0.5)
        right = engine.begin(PROMPTS).sample({0: 3}, SAMPLING)
        fake.faults.extend(faults)
        again = engine.begin(PROMPTS).sample({0: 3}, SAMPLING)
        assert (again[0].ids, fake.asked.count("fault")) == (right[0].ids, len(faults))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("short", "5 tokens and 4 log-probs"),
        ("unfinished", "ended by 'length'"),
        ("changed", "weights .*changed"),
        ("infinite", "not finite"),
    ],
)
def test_an_answer_that_cannot_be_trained_on_is_refused(opened, kind, fake, policy, fault, message):
    with serving(fake) as url:
        engine = opened(kind, url, policy)
        fake.faults.append(getattr(FAULTS[kind], fault))
        with pytest.raises(DataError, match=message):
            engine.begin(PROMPTS).sample({0: 3}, SAMPLING)


def test_a_server_that_stays_busy_is_for_later(opened, kind, fake, policy, monkeypatch):
    monkeypatch.setattr("clawpipe.model.engines.servers.time.sleep", lambda seconds: None)
    with serving(fake) as url:
        engine = opened(kind, url, policy)
        fake.faults.extend([fake_vllm.busy] * 6)
        with pytest.raises(BusyError, match="429, 6 times"):
            engine.begin(PROMPTS).sample({0: 3}, SAMPLING)


def test_requests_go_to_the_server_that_is_there(opened, kind, fake, policy):
    other = type(fake)(fake.base)
    with serving(fake) as url:
        with serving(other) as second:
            engine = opened(kind, (url, second), policy, concurrency=2)
            engine.begin(PROMPTS * 8).sample({row: row for row in range(24)}, SAMPLING)
            assert min(server.asked.count(fake.GENERATE) for server in (fake, other)) >= 1
        turns = engine.begin(PROMPTS * 2).sample({row: row for row in range(6)}, SAMPLING)  # the second one has gone
        assert len(turns) == 6


def test_the_base_is_checked_by_name(opened, kind, fake, policy):
    with serving(fake) as url:
        assert opened(kind, url, policy, model="base").described["version"] == VERSIONS[kind]
        with pytest.raises(ConfigError, match="no one base model other") as refused:
            opened(kind, url, policy, model="other")
    assert "it serves base" in refused.value.fix


def test_the_key_is_of_the_environment_alone(opened, kind, fake, policy, monkeypatch):
    fake.key = "k"
    with serving(fake) as url:
        monkeypatch.delenv(KEYS[kind], raising=False)
        with pytest.raises(ConfigError, match="401") as refused:
            opened(kind, url, policy).begin(PROMPTS).sample({0: 3}, SAMPLING)
        assert KEYS[kind] in refused.value.fix
        monkeypatch.setenv(KEYS[kind], "k")
        assert opened(kind, url, policy).begin(PROMPTS).sample({0: 3}, SAMPLING)
    for secret in ("http://me:pass@host", "http://host/?key=pass"):
        with pytest.raises(ValidationError, match=KEYS[kind]):
            EngineSpec(name=kind, url=secret)


THEIRS = """
from clawpipe.model.engines.vllm import VllmEngine


class Theirs(VllmEngine):
    name, key, title = "theirs", "THEIR_KEY", "Their server"
"""


def test_a_server_of_ones_own_is_given_the_nights_adapters(opened, policy, adapter, tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text(THEIRS)
    name, fake = f"{tmp_path / 'theirs.py'}:Theirs", FakeVllm(Path(policy.base))
    fake.key = "k"
    monkeypatch.setenv("THEIR_KEY", "k")
    settings = {"loads_adapters": True, "dtype": "bfloat16"}
    with serving(fake) as url:
        engine = opened(name, url, policy.model_copy(update={"adapter": str(adapter)}), **settings)
        assert engine.begin(PROMPTS).sample({0: 3}, SAMPLING)
        assert VllmEngine.load in fake.asked
    spec = EngineSpec(name=name, url=url, **settings)
    assert spec.differs("float32")  # so its nights have importance weights by default
    with pytest.raises(ValidationError, match="with `loads_adapters`"):
        EngineSpec(name=name, url=url)
    with pytest.raises(ValidationError, match="given adapters of one base"):
        NightConfig.model_validate({"rollouts": {"engine": spec}, "train": {"adapter": "full"}})


def test_where_a_server_is_changes_no_key():
    keys = [
        canonical(Generation(engine=EngineSpec(name="vllm", url=url, concurrency=n)))
        for url, n in [("http://a", 1), ("http://b", 9)]
    ]
    assert keys[0] == keys[1]
    assert keys[0] != canonical(Generation())
    assert keys[0] != canonical(Generation(engine=EngineSpec(name="vllm", url="http://a", dtype="bfloat16")))
    assert "engine" not in canonical(Generation())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rollouts": {"engine": "vllm"}}, "set `url`"),
        ({"rollouts": {"engine": "sglang"}}, "set `url`"),
        ({"rollouts": {"engine": {"name": "sglang", "python": "/opt/bin/python"}}}, "starts a server of vllm"),
        ({"rollouts": {"engine": {"name": "embedded", "url": "http://a"}}}, "is no server"),
        ({"rollouts": {"engine": {"name": "embedded", "url": "http://a", "loads_adapters": True}}}, "an engine of yours"),
        ({"rollouts": {"engine": {"name": "vllm", "url": "localhost:8000"}}}, "is no URL"),
        ({"rollouts": {"engine": {"name": "vllm", "url": "http://a"}}, "train": {"adapter": "full"}}, "given adapters of one base"),
        (
            {"rollouts": {"engine": {"name": "sglang", "url": "http://a"}}, "train": {"adapter": "full"}},
            "given adapters of one base",
        ),
        (
            {"rollouts": {"engine": {"name": "sglang", "url": "http://a"}}, "train": {"lora": {"variant": "rslora"}}},
            "set train.lora.variant to lora",
        ),
        (
            {"rollouts": {"engine": {"name": "vllm", "url": "http://a"}}, "train": {"lora": {"variant": "dora"}}},
            "set train.lora.variant to lora or rslora",
        ),
        ({"rollouts": {"engine": {"name": "openai", "url": "http://a/v1"}}, "train": {"method": "sft"}}, "set `model`"),
        ({"rollouts": {"engine": {"name": "openai", "url": "http://a/v1", "model": "m"}}}, "grpo takes ratios .* text only"),
    ],
)
def test_a_night_that_an_engine_cannot_serve_is_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        NightConfig.model_validate(settings)


def _compared(engine: LoraServers, policy: PolicySpec) -> Agreement:
    adapter = Path(policy.adapter) if policy.adapter else None
    model = load_policy(Path(policy.base), adapter, "float32", torch.device("cpu"))
    return compare_engine(engine, model, probe_for(model, Path(policy.base)))
