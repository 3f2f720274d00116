"""The engine that samples is the one that the settings name."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from clawpipe.core.config.night import EngineSpec, Generation, Model, NightConfig
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.model.engines.base import ENGINES, Sampling, open_engine
from clawpipe.model.policy.spec import PolicySpec, untrained_spec
from clawpipe.play.workers.request import CheckRequest, Job, ShardRequest
from clawpipe.play.workers.worker import Worker

OWN = '''
from clawpipe.model.engines.embedded import EmbeddedEngine

class Mine:
    """Hands everything to the embedded engine, whose model it does not show; begins a turn later where it is told to."""

    def __init__(self, base, adapter, dtype, device, quantization, note):
        self._engine = EmbeddedEngine(base, adapter, dtype, device, quantization)
        with open(note, "a") as file:
            file.write("opened ")

    @property
    def context(self): return self._engine.context
    def begin(self, prompts): return self._engine.begin(prompts)
    def score(self, ids, start, temperature=1.0): return self._engine.score(ids, start, temperature)
    def distributions(self, ids, positions, temperature=1.0): return self._engine.distributions(ids, positions, temperature)

class Deaf:
    def __init__(self, *arguments): self.context = 8
'''


@pytest.fixture(scope="module")
def policy() -> PolicySpec:
    return untrained_spec(Model(base="random"))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(OWN)
    return tmp_path / "mine.py"


@pytest.fixture
def spec(own: Path) -> EngineSpec:
    return EngineSpec(name=f"{own}:Mine", options={"note": str(own.parent / "note")})


def test_the_setting_is_a_name_or_a_name_with_options():
    assert Generation().engine == EngineSpec(name="embedded")
    config = NightConfig.model_validate({"rollouts": {"engine": "mine.py:Mine"}})
    assert config.rollouts is not None
    assert config.rollouts.engine == EngineSpec(name="mine.py:Mine")
    with pytest.raises(ValidationError):
        NightConfig.model_validate({"rollouts": {"engine": {"url": "http://localhost"}}})


def test_a_users_engine_rolls_out_like_the_embedded_one(tmp_path: Path, policy: PolicySpec, spec: EngineSpec):
    from clawpipe.play.environments.letters import LettersEnvironment

    items = [item.as_row() for item in LettersEnvironment().items("train", 2, 0)]
    written = []
    for number, engine in enumerate((EngineSpec(), spec)):
        request = ShardRequest(
            policy=policy, engine=engine, environment="letters", options={}, items=items,
            group_size=2, temperature=1.0, max_new_tokens=4, max_turns=2, seed=0,
        )  # fmt: skip
        output = tmp_path / f"{number}.parquet"
        assert Worker("cpu").run(Job(request=request, output=str(output))) == 4
        written.append(output.read_bytes())
    assert written[0] == written[1]
    assert (tmp_path / "note").read_text() == "opened "


def test_a_worker_opens_another_engine_for_the_same_policy(tmp_path: Path, policy: PolicySpec, spec: EngineSpec):
    worker = Worker("cpu")
    for engine in (spec, spec, EngineSpec(), spec):
        worker.run(Job(request=CheckRequest(policy=policy, engine=engine)))
    assert (tmp_path / "note").read_text() == "opened opened "


def test_an_engine_without_a_model_is_compared_with_the_disk(policy: PolicySpec, spec: EngineSpec):
    found = Worker("cpu").run(Job(request=CheckRequest(policy=policy, engine=spec)))
    assert found["layout"] == "apart"
    assert found["largest"] < 1e-3


def test_a_streamed_turn_is_the_sampled_one(policy: PolicySpec):
    engine, sampling = open_engine(EngineSpec(), policy, "cpu"), Sampling(1.0, 5)
    [sampled] = engine.begin([[65, 66]]).sample({0: 3}, sampling).values()
    streamed = list(engine.begin([[65, 66]]).stream(0, 3, sampling, top=2))
    assert [token for token, _ in streamed] == sampled.ids
    assert [likelihood.logprob for _, likelihood in streamed] == pytest.approx(sampled.logprobs, abs=1e-6)
    assert all(len(likelihood.top) == 2 for _, likelihood in streamed)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("vlm", NotFoundError, "no engine 'vlm'"),
        ("{own}:Deaf", ConfigError, "it has no begin"),
        ("{own}:Mine", ConfigError, "missing a required argument: 'note'"),
    ],
)
def test_what_is_no_engine_is_one_line(own: Path, policy: PolicySpec, name: str, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        open_engine(EngineSpec(name=name.format(own=own)), policy, "cpu")


def test_an_edited_engine_is_another_key(own: Path, spec: EngineSpec):
    before = ENGINES.source_digest(spec.name)
    own.write_text(OWN + "\nlater = 1\n")
    assert ENGINES.source_digest(spec.name) != before
