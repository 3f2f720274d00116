"""A service that speaks Tinker's API as an engine: a fake of it, in this repository, which really samples."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
from pydantic import ValidationError

from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.config.night import Model
from clawpipe.errors import BusyError, ClawpipeError, ConfigError, DataError, NotFoundError
from clawpipe.model.engines.base import Completion, Sampling, open_engine
from clawpipe.model.engines.turns import Turns
from clawpipe.model.policy.spec import PolicySpec, untrained_spec

pytest.importorskip("tinker")
from clawpipe.model.engines.tinker import TinkerEngine
from tests.fake_tinker import KEY, FakeTinker, Fault, fake_tinker

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # the library leaves its first connection open
PROMPTS = [[65, 66, 67], [65, 66], [70, 71, 72, 73]]
SAMPLING = Sampling(1.0, 5)


@pytest.fixture(autouse=True)
def _no_connection_outlives_a_test() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(scope="module")
def policy() -> PolicySpec:
    return untrained_spec(Model(base="random")).model_copy(update={"policy_version": "0123456789abcdef"})


@pytest.fixture
def fake(policy: PolicySpec, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTinker]:
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    with fake_tinker({"tiny": policy.base}) as service:
        yield service


@pytest.fixture
def opened(fake: FakeTinker) -> Iterator[Callable[..., TinkerEngine]]:
    """opened(policy, ...): the engine, which is closed in the end."""
    engines: list[TinkerEngine] = []

    def run(policy: PolicySpec, **settings) -> TinkerEngine:
        spec = EngineSpec(name="tinker", url=fake.url, model="tiny", timeout=20.0, **settings)  # type: ignore[arg-type]
        engines.append(open_engine(spec, policy, "cpu"))  # type: ignore[arg-type]
        return engines[-1]

    yield run
    for engine in engines:
        engine.close()


def turns(engine: TinkerEngine, sampling: Sampling = SAMPLING) -> list[Completion]:
    conversations = engine.begin(PROMPTS)
    first = conversations.sample({0: 1, 1: 2, 2: 2**64 - 1}, sampling)
    conversations.extend({0: [80, 81]})
    second = conversations.sample({0: 4}, sampling)
    return [*first.values(), *second.values()]


def test_turns_and_scores_are_those_of_the_model_there(opened, fake, policy):
    there, own = opened(policy), open_engine(EngineSpec(), policy, "cpu")
    assert there.context == own.context
    found = turns(there)
    assert [len(turn.ids) for turn in found] == [5, 5, 5, 5]
    ids = PROMPTS[0] + found[0].ids
    assert found[0].logprobs == pytest.approx(own.score(ids, 3), abs=1e-4)  # type: ignore[attr-defined]
    later = [*ids, 80, 81, *found[3].ids]
    assert found[3].logprobs == pytest.approx(own.score(later, len(ids) + 2), abs=1e-4)  # type: ignore[attr-defined]
    assert there.score(later, 2) == pytest.approx(own.score(later, 2), abs=1e-4)  # type: ignore[attr-defined]
    assert there.described == {"name": "tinker", "model": "tiny", "dtype": "bfloat16"}
    assert turns(opened(policy, concurrency=1)) == found
    assert fake.sampled == 9


def test_a_turn_ends_at_a_stop_token_and_says_so(opened, policy):
    engine = opened(policy)
    [whole] = engine.sample([(PROMPTS[0], 1)], SAMPLING)
    [cut] = engine.sample([(PROMPTS[0], 1)], Sampling(1.0, 5, stop_ids=(whole.ids[2],)))
    assert cut.finish_reason == "stop"
    assert cut.ids == whole.ids[: cut.ids.index(whole.ids[2]) + 1]


def test_lost_answers_and_busy_services_cost_no_turn_twice(opened, fake, policy):
    straight = turns(opened(policy))
    fake.sampled = 0
    fake.requests.clear()
    fake.faults = [
        Fault("create_sampling_session", 503),
        Fault("asample", 0, late=True),
        Fault("asample", 429, first=3, last=3),
        Fault("asample", 500, first=5, last=5, late=True),
        Fault("retrieve_future", -1),
        Fault("retrieve_future", 502, first=3, last=3),
    ]
    assert turns(opened(policy)) == straight
    assert fake.sampled == 4


def test_what_was_answered_before_a_kill_is_not_asked_again(opened, fake, policy, tmp_path, monkeypatch):
    file, straight = tmp_path / "shard.turns", turns(opened(policy))

    class PowerCutError(BaseException): ...

    def cut(name: str, detail: str = "") -> None:
        if (name, detail) == ("tinker.asked", "sample") and file.exists() and len(file.read_bytes().splitlines()) == 3:
            raise PowerCutError

    monkeypatch.setattr("clawpipe.core.system.faults.kill_point", cut)
    killed = opened(policy, concurrency=1)
    killed.remember(file)
    with pytest.raises(PowerCutError):
        turns(killed)
    monkeypatch.undo()
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    with file.open("ab") as lines:
        lines.write(b'\n["a line that was cut')
    fake.sampled, again = 0, opened(policy)
    again.remember(file)
    assert turns(again) == straight
    assert fake.sampled == 2
    again.remember(file)
    assert turns(again) == straight
    assert fake.sampled == 2


def test_a_file_of_turns_survives_its_own_cut_lines(tmp_path):
    file = tmp_path / "turns"
    file.write_bytes(b'["a", [1], [-0.5], "stop"]\n["b", [1]]\n7\n["c", [2], [-0.')
    found = Turns(file)
    assert found.get("a") == Completion([1], [-0.5], "stop")
    assert (found.get("b"), found.get("c")) == (None, None)
    found.add("c", Completion([2], [-0.25], "length"))
    assert Turns(file).get("c") == Completion([2], [-0.25], "length")


def _key(fake, monkeypatch):
    monkeypatch.setenv("TINKER_API_KEY", "tml-another")


def _payment(fake, monkeypatch):
    fake.faults = [Fault("create_sampling_session", 402, last=99)]


def _unknown(fake, monkeypatch):
    fake.bases.clear()


def _vocabulary(fake, monkeypatch):
    fake.vocabulary = 5


def _never(fake, monkeypatch):
    fake.faults = [Fault("retrieve_future", 503, last=10**6)]


def _infinite(fake, monkeypatch):
    fake.off = float("nan")


WRONG = {
    "another key": (_key, ConfigError, "refuses the key"),
    "no money": (_payment, ConfigError, "cannot pay"),
    "no such model": (_unknown, DataError, "404"),
    "another vocabulary": (_vocabulary, DataError, "beyond the vocabulary"),
    "log-probs that are not finite": (_infinite, DataError, "not finite"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_goes_wrong_there_is_one_line(opened, fake, policy, monkeypatch, name):
    spoil, kind, said = WRONG[name]
    spoil(fake, monkeypatch)
    with pytest.raises(ClawpipeError, match=said) as caught:
        turns(opened(policy))
    assert type(caught.value) is kind
    assert "\n" not in caught.value.what
    assert KEY not in str(caught.value)


def test_a_service_that_never_answers_is_busy(fake, policy):
    _never(fake, None)
    spec = EngineSpec(name="tinker", url=fake.url, model="tiny", timeout=2.0)  # type: ignore[arg-type]
    engine = open_engine(spec, policy, "cpu")
    with pytest.raises(BusyError, match="in the time"):
        turns(engine)  # type: ignore[arg-type]
    engine.close()  # type: ignore[attr-defined]


def test_an_adapter_that_was_not_trained_there_is_refused(opened, policy, tmp_path):
    with pytest.raises(NotFoundError, match="never given the adapter of policy 0123456789abcdef"):
        opened(policy.model_copy(update={"adapter": str(tmp_path)}))


def test_weights_of_another_base_are_refused(opened, fake, policy, tmp_path):
    fake.kept[path := "tinker://run/sampler_weights/adapter"] = ("tiny", {})
    fake.named["tiny"] = "large"
    with pytest.raises(DataError, match="samples from large, not from tiny"):
        opened(policy.model_copy(update={"adapter": str(tmp_path), "remote": path}))
    with pytest.raises(DataError, match=r"nothing to sample from at .*gone"):
        opened(policy.model_copy(update={"adapter": str(tmp_path), "remote": f"{path}-gone"}))


@pytest.mark.parametrize(
    ("given", "said"),
    [({}, "needs the name"), ({"model": "m", "url": ["http://a", "http://b"]}, "one service"), ({"python": "p"}, "python")],
)
def test_settings_that_cannot_be_are_refused(given, said):
    with pytest.raises(ValidationError, match=said):
        EngineSpec(name="tinker", **given)


def test_where_the_service_is_changes_no_key():
    specs = [EngineSpec(name="tinker", model="m", url=url) for url in ("http://a", "http://b")]  # type: ignore[arg-type]
    assert "url" not in specs[0].result_fields() | specs[1].result_fields()
