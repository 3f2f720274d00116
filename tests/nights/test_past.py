"""Which rounds of earlier nights a night looks back at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.model.policy.version import base_ref
from clawpipe.record.nights.files import LINEAGE, run_dir
from clawpipe.record.nights.past import past_rounds
from clawpipe.record.nights.record import create_record, new_record
from clawpipe.record.nights.status import NightStatus, entry, read_status, write_status

LOOKS_BACK: dict[str, Any] = {"rollouts": {"difficulty": {}}}
TRAINED = base_ref("random", "b" * 64, "pythonic", "float32").model_copy(update={"digest": "d" * 64, "policy_version": "p1"})


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def spent(home: Home, label: str, rounds: list[str], verdict: bool = True, **config: Any) -> str:
    """A night with rounds of these digests."""
    settings = NightConfig.model_validate({"night": label} | config)
    night = create_record(home, settings, None).night
    steps = []
    for number, digest in enumerate(rounds, 1):
        made = {"generate_rollouts": "trajectories", "score": "scores"}
        outputs = {name: DatasetRef(name=dataset, digest=digest, rows=1) for name, dataset in made.items()} | {"train": TRAINED}
        steps += [entry(f"round-{number}/{name}", False, 1.0, None, StepResult(output=ref)) for name, ref in outputs.items()]
    write_status(NightStatus(night=night, steps=steps, run_dir=str(run_dir(home, night))))
    if verdict:
        (run_dir(home, night) / LINEAGE).write_text("{}")
    return night


@pytest.fixture(autouse=True)
def everything_is_there(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    lost: set[str] = set()
    monkeypatch.setattr(Store, "has", lambda self, ref: ref.digest not in lost)
    return lost


def seen(home: Home, store: Store, label: str = "now", **config: Any) -> list[str]:
    settings = NightConfig.model_validate({"night": label} | LOOKS_BACK | config)
    return [one.trajectories[:1] for one in past_rounds(home, store, settings)]


def test_the_newest_round_of_the_newest_night_comes_first(home: Home, store: Store) -> None:
    spent(home, "one", ["1" * 64, "2" * 64])
    spent(home, "two", ["3" * 64])
    assert seen(home, store) == ["3", "2", "1"]
    older = next(home.runs.glob("one-*")).name
    write_status(read_status(home, older))  # as a run does whose steps are all cached
    assert seen(home, store) == ["3", "2", "1"]
    settings = NightConfig.model_validate({"night": "now"} | LOOKS_BACK)
    assert [one.trained for one in past_rounds(home, store, settings)] == ["p1"] * 3


def test_only_nights_of_the_same_task_and_base_count(home: Home, store: Store) -> None:
    spent(home, "same", ["1" * 64])
    spent(home, "unfinished", ["2" * 64], verdict=False)
    spent(home, "other task", ["3" * 64], environment={"name": "letters"})
    spent(home, "other base", ["4" * 64], model={"base": "random"})
    spent(home, "damaged", ["5" * 64])
    (run_dir(home, sorted(path.name for path in home.runs.glob("damaged*"))[0]) / "config.json").write_text("{")
    assert seen(home, store) == ["1"]


def test_nights_that_asked_more_or_less_of_a_task_count(home: Home, store: Store) -> None:
    shop, letters, strict = {"name": "shop"}, {"name": "letters"}, {"name": "letters", "options": {"threshold": 0.9}}
    spent(home, "alone", ["1" * 64], environment=letters)
    spent(home, "both", ["2" * 64], environments=[shop | {"weight": 3}, letters])
    spent(home, "stricter", ["3" * 64], environment=strict)
    spent(home, "other", ["4" * 64], environment=shop)
    assert seen(home, store, environments=[letters | {"weight": 2}, strict]) == ["3", "2", "1"]
    assert seen(home, store, environment=letters) == ["2", "1"]
    assert seen(home, store, environments=[shop, letters]) == ["4", "2", "1"]


def test_items_are_those_drawn_for_the_round_or_the_nights(home: Home, store: Store) -> None:
    """They say which slices its rollouts are of."""
    for label, names in (("all", ["make_items"]), ("drawn", ["make_items", "round-1/draw_items"])):
        status = read_status(home, spent(home, label, [label[0] * 64]))
        made = [StepResult(output=DatasetRef(name="task_items", digest=f"{len(name):x}" * 32, rows=1)) for name in names]
        steps = [entry(name, False, 1.0, None, one) for name, one in zip(names, made, strict=True)]
        write_status(status.model_copy(update={"steps": [*steps, *status.steps]}))
    settings = NightConfig.model_validate({"night": "now"} | LOOKS_BACK)
    assert [one.items for one in past_rounds(home, store, settings)] == ["12" * 32, "a" * 32]


def test_rounds_say_whose_base_sampled_them_here(home: Home, store: Store) -> None:
    """What a model at an endpoint sampled has another tokenizer, or no tokens."""
    spent(home, "own", ["1" * 64])
    endpoint = {"name": "openai", "url": "http://127.0.0.1:1/v1", "model": "m"}
    spent(home, "other", ["2" * 64], rollouts={"engine": endpoint}, train={"method": "sft"})
    settings = NightConfig.model_validate({"night": "now"} | LOOKS_BACK)
    assert [one.sampled for one in past_rounds(home, store, settings)] == [None, TRAINED.base]


def test_a_night_is_not_its_own_past(home: Home, store: Store) -> None:
    spent(home, "now", ["1" * 64], **LOOKS_BACK)
    assert seen(home, store) == []
    assert seen(home, store, "later") == ["1"]


def test_lost_rounds_are_left_out(home: Home, store: Store, everything_is_there: set[str]) -> None:
    spent(home, "one", ["1" * 64, "2" * 64])
    everything_is_there.add("1" * 64)
    assert seen(home, store) == ["2"]


def test_a_night_that_asks_for_nothing_looks_at_nothing(home: Home, store: Store) -> None:
    spent(home, "one", ["1" * 64])
    assert past_rounds(home, store, NightConfig(night="now")) == ()


def test_replay_counts_nights_and_the_record_keeps_them(home: Home, store: Store) -> None:
    for label, digest in (("one", "1"), ("two", "2"), ("three", "3")):
        spent(home, label, [digest * 64])
    config = NightConfig.model_validate({"night": "now", "curation": {"sampling": {"replay": 0.2, "replay_nights": 2}}})
    past = past_rounds(home, store, config)
    assert [one.trajectories[:1] for one in past] == ["3", "2"]
    create_record(home, config, None, {}, past)
    assert new_record(home, config, None, {}, past).past == past
