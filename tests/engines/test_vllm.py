"""vLLM as an engine, against a fake that speaks its protocol in front of the embedded engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from clawpipe.config.engine import EngineSpec
from clawpipe.config.night import Generation, Model, NightConfig
from clawpipe.engines.base import Sampling, open_engine
from clawpipe.engines.vllm import VllmEngine
from clawpipe.errors import BusyError, ConfigError, DataError
from clawpipe.policy.agreement import OTHER_SERVER, Agreement, require_agreement
from clawpipe.policy.load import load_policy
from clawpipe.policy.probe import probe_for
from clawpipe.policy.spec import PolicySpec, untrained_spec
from clawpipe.rollouts.generate import engine_bound
from clawpipe.store.digests import canonical
from clawpipe.workers.compare import compare_engine
from tests import fake_vllm
from tests.fake_vllm import FakeVllm, serving

PROMPTS = [[65, 66, 67], [65, 66], [70, 71, 72, 73]]
SAMPLING = Sampling(0.7, 5)


@pytest.fixture(scope="module")
def policy() -> PolicySpec:
    return untrained_spec(Model(base="random")).model_copy(update={"policy_version": "0123456789abcdef"})


@pytest.fixture(scope="module")
def adapter(policy: PolicySpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that changes what the model says."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    model = get_peft_model(
        load_policy(Path(policy.base), None, "float32", torch.device("cpu")), LoraConfig(r=2, target_modules="all-linear")
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.2)
    folder = tmp_path_factory.mktemp("adapter")
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def fake(policy: PolicySpec) -> FakeVllm:
    return FakeVllm(Path(policy.base))


def spec(url: str | tuple[str, ...], **settings) -> EngineSpec:
    return EngineSpec(name="vllm", url=url, **settings)


@pytest.fixture
def opened() -> Iterator[Callable[..., VllmEngine]]:
    """opened(url, policy, ...): the engine, which is closed in the end."""
    engines: list[VllmEngine] = []

    def run(url: str | tuple[str, ...], policy: PolicySpec, **settings) -> VllmEngine:
        engines.append(open_engine(spec(url, **settings), policy, "cpu"))  # type: ignore[arg-type]
        return engines[-1]

    yield run
    for engine in engines:
        engine.close()


def test_turns_are_those_of_the_model_behind_the_server(opened, fake, policy):
    own = open_engine(EngineSpec(), policy, "cpu")
    with serving(fake) as url:
        there = opened(url, policy)
        assert there.context == own.context
        talks = [engine.begin(PROMPTS) for engine in (own, there)]
        for seeds in ({0: 3, 1: 4, 2: 2**62 + 1}, {1: 5, 2: 6}):
            here, away = (talk.sample(seeds, SAMPLING) for talk in talks)
            assert {row: turn.ids for row, turn in here.items()} == {row: turn.ids for row, turn in away.items()}
            for row, turn in here.items():
                assert away[row].logprobs == pytest.approx(turn.logprobs, abs=1e-4)
            for talk in talks:
                talk.extend({1: [80, 81], 2: [82]})


def test_log_probs_agree_with_the_models_forward(opened, fake, policy):
    with serving(fake) as url:
        found = _compared(opened(url, policy), policy)
    assert found.largest < 1e-3
    assert (found.kind, found.layout) == ("tempered", "apart")


def test_raw_log_probs_end_in_one_line_that_says_so(opened, fake, policy):
    fake.raw = True
    with serving(fake) as url, pytest.raises(DataError, match=r"engine's log-probs are \S+ nats off .* raw ones") as refused:
        require_agreement(_compared(opened(url, policy), policy), engine_bound(policy, spec(url)), url, OTHER_SERVER)
    assert "--logprobs-mode processed_logprobs" in refused.value.fix
    assert "\n" not in refused.value.what


def test_a_stale_adapter_and_another_model_end_in_one_line(opened, fake, policy, adapter):
    fake.stale = True
    adapted = policy.model_copy(update={"adapter": str(adapter)})
    with serving(fake) as url, pytest.raises(DataError, match="nats off") as refused:
        require_agreement(_compared(opened(url, adapted), adapted), engine_bound(policy, spec(url)), url, OTHER_SERVER)
    assert "adapter" in refused.value.fix


def test_an_adapter_is_loaded_by_its_versions_name(opened, fake, policy, adapter):
    adapted = policy.model_copy(update={"adapter": str(adapter)})
    with serving(fake) as url:
        engine = opened(url, adapted)
        assert fake.held == {f"clawpipe-{policy.policy_version}": str(adapter)}
        assert _compared(engine, adapted).largest < 1e-3
        fake.held.clear()  # another night has unloaded it
        again = opened(url, adapted)
        engine.begin(PROMPTS).sample({0: 1}, SAMPLING)
        again.close()
        assert fake.held == {}


def test_a_server_that_takes_no_adapter_says_how_to_start_it(opened, fake, policy, tmp_path):
    adapted = policy.model_copy(update={"adapter": str(tmp_path / "nowhere")})
    with serving(fake) as url, pytest.raises(ConfigError, match="does not load the adapter") as refused:
        opened(url, adapted)
    assert "--enable-lora" in refused.value.fix


@pytest.mark.parametrize("faults", [(fake_vllm.busy,) * 2, (fake_vllm.broken,), (fake_vllm.cut,), (fake_vllm.slow,)])
def test_a_fault_that_passes_changes_no_turn(opened, fake, policy, faults):
    with serving(fake) as url:
        engine = opened(url, policy, timeout=0.5)
        right = engine.begin(PROMPTS).sample({0: 3}, SAMPLING)
        fake.faults.extend(faults)
        again = engine.begin(PROMPTS).sample({0: 3}, SAMPLING)
        assert (again[0].ids, fake.asked.count("fault")) == (right[0].ids, len(faults))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (fake_vllm.short, "5 tokens and 4 log-probs"),
        (fake_vllm.unfinished, "ended by 'length'"),
        (fake_vllm.changed, "its weights changed"),
        (fake_vllm.infinite, "not finite"),
    ],
)
def test_an_answer_that_cannot_be_trained_on_is_refused(opened, fake, policy, fault, message):
    with serving(fake) as url:
        engine = opened(url, policy)
        fake.faults.append(fault)
        with pytest.raises(DataError, match=message):
            engine.begin(PROMPTS).sample({0: 3}, SAMPLING)


def test_a_server_that_stays_busy_is_for_later(opened, fake, policy, monkeypatch):
    monkeypatch.setattr("clawpipe.engines.servers.time.sleep", lambda seconds: None)
    with serving(fake) as url:
        engine = opened(url, policy)
        fake.faults.extend([fake_vllm.busy] * 6)
        with pytest.raises(BusyError, match="429, 6 times"):
            engine.begin(PROMPTS).sample({0: 3}, SAMPLING)


def test_requests_go_to_the_server_that_is_there(opened, fake, policy):
    other = FakeVllm(fake.base)
    with serving(fake) as url:
        with serving(other) as second:
            engine = opened((url, second), policy, concurrency=2)
            engine.begin(PROMPTS * 8).sample({row: row for row in range(24)}, SAMPLING)
            assert min(server.asked.count("/inference/v1/generate") for server in (fake, other)) >= 1
        turns = engine.begin(PROMPTS * 2).sample({row: row for row in range(6)}, SAMPLING)  # the second one has gone
        assert len(turns) == 6


def test_the_base_is_checked_by_name(opened, fake, policy):
    with serving(fake) as url:
        assert opened(url, policy, model="base").described["version"] == "0.32.0-fake"
        with pytest.raises(ConfigError, match="no one base model other") as refused:
            opened(url, policy, model="other")
    assert "it serves base" in refused.value.fix


def test_the_key_is_of_the_environment_alone(opened, fake, policy, monkeypatch):
    fake.key = "k"
    with serving(fake) as url:
        monkeypatch.delenv("VLLM_API_KEY", raising=False)
        with pytest.raises(ConfigError, match="401") as refused:
            opened(url, policy).begin(PROMPTS).sample({0: 3}, SAMPLING)
        assert "VLLM_API_KEY" in refused.value.fix
        monkeypatch.setenv("VLLM_API_KEY", "k")
        assert opened(url, policy).begin(PROMPTS).sample({0: 3}, SAMPLING)
    for secret in ("http://me:pass@host", "http://host/?key=pass"):
        with pytest.raises(ValidationError, match="VLLM_API_KEY"):
            spec(secret)


def test_where_a_server_is_changes_no_key():
    keys = [
        canonical(Generation(engine=EngineSpec(name="vllm", url=url, concurrency=n)))
        for url, n in [("http://a", 1), ("http://b", 9)]
    ]
    assert keys[0] == keys[1]
    assert keys[0] != canonical(Generation())
    assert keys[0] != canonical(Generation(engine=spec("http://a", dtype="bfloat16")))
    assert "engine" not in canonical(Generation())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rollouts": {"engine": "vllm"}}, "set `url`"),
        ({"rollouts": {"engine": {"name": "embedded", "url": "http://a"}}}, "is no server"),
        ({"rollouts": {"engine": {"name": "vllm", "url": "localhost:8000"}}}, "is no URL"),
        ({"rollouts": {"engine": {"name": "vllm", "url": "http://a"}}, "train": {"adapter": "full"}}, "given adapters of one base"),
        ({"rollouts": {"engine": {"name": "openai", "url": "http://a/v1"}}, "train": {"method": "sft"}}, "set `model`"),
        ({"rollouts": {"engine": {"name": "openai", "url": "http://a/v1", "model": "m"}}}, "grpo takes ratios .* text only"),
    ],
)
def test_a_night_that_an_engine_cannot_serve_is_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        NightConfig.model_validate(settings)


def _compared(engine: VllmEngine, policy: PolicySpec) -> Agreement:
    adapter = Path(policy.adapter) if policy.adapter else None
    model = load_policy(Path(policy.base), adapter, "float32", torch.device("cpu"))
    return compare_engine(engine, model, probe_for(model, Path(policy.base)))
