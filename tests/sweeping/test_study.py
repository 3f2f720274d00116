"""Trials of a sweep, with interruptions."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest
import yaml
from rich.console import Console

from clawpipe.core.config import NightConfig, load_config
from clawpipe.core.store.home import Home
from clawpipe.record.nights.status import Figures, NightStatus
from clawpipe.start.sweeping.results import BEST, report, table, write_best
from clawpipe.start.sweeping.space import Choices, Range
from clawpipe.start.sweeping.study import Study
from clawpipe.start.sweeping.sweep import Sweep, slot_home, trial_environment

SPACE = {
    "train.learning_rate": Range(low=1e-4, high=1e-2, log=True),
    "train.lora.target_modules": Choices(choices=("all-linear", ["q_proj", "v_proj"])),
}


@pytest.fixture
def new_study(home: Home) -> Callable[..., Study]:
    """Open a sweep like a new process."""

    def start(seed: int = 0, **settings: object) -> Study:
        config = NightConfig.model_validate({"night": "{date}", **settings})
        return Study(Sweep(name="lr", seed=seed, config=config, space=SPACE).save(home))

    return start


def verdict(success: float | None) -> NightStatus:
    figures = None if success is None else Figures(success=success, low=success / 2, high=(1 + success) / 2, n=60)
    return NightStatus(night="n", verdict="HOLD", heldout={"base": None, "champion": None, "candidate": figures})


def run(study: Study, *successes: float) -> list[dict]:
    """Trials from start to end, one after the other; the settings of each."""
    settings = []
    for success in successes:
        number = study.take(0, 1, 100)
        assert number is not None
        settings.append(study.night(number).model_dump())
        study.complete(number, verdict(success))
    return settings


def test_the_same_command_finds_the_same_sweep(new_study):
    first = new_study()
    assert new_study().directory == first.directory
    assert new_study(runtime={"device": "cpu"}, tracking={"wandb": "p"}).directory == first.directory
    assert len({study.directory for study in (first, new_study(seed=1), new_study(rounds=1))}) == 3


def test_draws_depend_on_the_seed_and_not_on_interruptions(new_study, home, monkeypatch, tmp_path):
    at_once = run(new_study(), 0.1, 0.5, 0.3)
    assert len({json.dumps(one["train"]) for one in at_once}) == 3
    monkeypatch.setenv("CLAWPIPE_HOME", str(tmp_path / "another"))
    other = Sweep(name="lr", seed=0, config=NightConfig(), space=SPACE).save(Home.from_env())
    settings = [run(Study(other), success)[0] for success in (0.1, 0.5)]
    Study(other).take(0, 1, 100)  # killed here
    settings += run(Study(other), 0.3)
    assert settings == at_once
    assert len(Study(other).trials) == 3


def test_trials_have_labels_of_their_own_and_change_nothing_else(new_study):
    study = new_study()
    first, second = (study.night(study.take(0, 1, 2)) for _ in range(2))  # type: ignore[arg-type]
    assert (first.night, second.night) == ("lr-000", "lr-001")
    drawn = {"train": {"learning_rate", "lora"}}
    plain = NightConfig(night="lr-000", draw="lr").model_dump(exclude=drawn)  # all draw the same items
    assert first.model_dump(exclude=drawn) == plain


def test_a_sweep_ends_with_its_last_trial_and_may_be_made_longer(new_study):
    study = new_study()
    run(study, 0.1, 0.2)
    assert study.take(0, 1, 2) is None
    assert study.is_done(2)
    assert not study.is_done(3)
    assert study.take(0, 1, 3) == 2
    assert not study.is_done(3)


def test_interrupted_trials_return_to_their_slot_or_any_other(new_study):
    study = new_study()
    assert [study.take(slot, 3, 9) for slot in range(3)] == [0, 1, 2]
    again = new_study()
    assert again.take(1, 2, 9) == 1
    assert again.take(0, 2, 9) == 0
    assert again.take(0, 2, 9) == 2  # there is no third slot any more
    assert again.take(1, 2, 9) == 3
    assert [again.notes(number)["slot"] for number in range(4)] == [0, 1, 0, 1]


def test_trials_of_different_slots_never_meet(new_study, home, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    directory = new_study().directory
    first, second = (trial_environment(home, directory, slot) for slot in (0, 1))
    assert first["CLAWPIPE_HOME"] == str(slot_home(directory, 0).root) != second["CLAWPIPE_HOME"]
    assert first["PREFECT_LOCAL_STORAGE_PATH"] != second["PREFECT_LOCAL_STORAGE_PATH"]
    assert first["MLFLOW_TRACKING_URI"] == second["MLFLOW_TRACKING_URI"] == f"sqlite:///{home.root}/mlflow/mlflow.db"


def test_a_trial_is_pruned_below_the_median_of_those_that_ended(new_study):
    study = new_study()
    for success in (0.1, 0.2, 0.3, 0.4):
        number = study.take(0, 1, 9)
        assert not study.prune(number, 1, success)
        study.complete(number, verdict(success))
    good, bad = study.take(0, 1, 9), study.take(0, 1, 9)
    assert not study.prune(good, 1, 0.26)  # the median is 0.25
    assert study.prune(bad, 1, 0.24)
    study.drop(bad)
    told = report(study)
    assert told["counts"] == {"complete": 4, "running": 1, "pruned": 1}
    assert told["trials"][bad]["value"] is None
    assert told["trials"][bad]["rounds"] == {"1": 0.24}


def test_errors_are_recorded_and_an_outcome_is_not_overwritten(new_study):
    study = new_study()
    for _ in range(3):
        study.take(0, 1, 3)
    study.fail(0, "memory ran out")
    study.complete(1, verdict(None))
    study.complete(2, verdict(0.5))
    study.fail(2, "too late")
    told = report(study)
    assert told["counts"] == {"failed": 2, "complete": 1}
    assert [trial["error"] for trial in told["trials"]] == [
        "memory ran out",
        "no held-out item was evaluated without an error",
        None,
    ]
    assert told["best"]["number"] == 2


def test_the_best_settings_are_a_config_that_runs(new_study):
    study = new_study()
    write_best(study)
    assert not (study.directory / BEST).exists()
    assert report(study)["best"] is None
    run(study, 0.2, 0.7, 0.7)
    write_best(study)
    best = load_config(study.directory / BEST)
    assert best == study.night(1).model_copy(update={"night": "{date}", "draw": None})
    assert yaml.safe_load((study.directory / BEST).read_text())["train"]["learning_rate"] == best.train.learning_rate
    assert json.loads(json.dumps(report(study)))["best"]["config"] == str(study.directory / BEST)
    assert report(study)["best"]["interval"] == [0.35, 0.85]


def test_people_see_the_best_first_and_every_error(new_study):
    study = new_study()
    run(study, 0.2, 0.7)
    study.fail(study.take(0, 1, 9), "memory ran\nout")
    console = Console(width=80, file=io.StringIO())
    console.print(table(report(study)), crop=False)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.split()[0] for line in lines if "[" in line and "complete" in line] == ["1", "0"]
    assert any("0.700 [0.350, 0.850]" in line for line in lines)
    assert any("trial 2: memory ran out" in line for line in lines)
    label = f"-o night={study.sweep.id}-best"
    assert any(f"clawpipe run -c {study.directory / BEST} {label}" in line for line in lines)


def test_the_best_settings_draw_other_items_than_the_trials(new_study):
    """Under a label of their own, even where all trials had the draw of the sweep's config."""
    study = new_study(draw="monday")
    run(study, 0.2, 0.7)
    write_best(study)
    assert study.night(1).draw == "monday"
    assert load_config(study.directory / BEST).draw is None
