"""The journal of a night, and its conclusion."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import StepResult
from clawpipe.errors import DataError
from clawpipe.record.nights.conclude import conclude
from clawpipe.record.nights.files import LINEAGE
from clawpipe.record.nights.journal import Journal, NullWatcher, watched_by, watcher
from clawpipe.record.nights.status import NightStatus, StepEntry, entry, read_status


class Listener(NullWatcher):
    """A watcher that records its calls."""

    def __init__(self) -> None:
        self.told: list[tuple] = []

    def started(self, step: str) -> None:
        self.told.append(("started", step))

    def progress(self, step: str, done: float, total: float, note: str) -> None:
        self.told.append(("progress", step, done, total, note))

    def finished(self, entry: StepEntry) -> None:
        self.told.append(("finished", entry.name))


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def journal(home: Home, listener: Listener) -> Journal:
    return Journal(NightStatus(night="a", run_dir=str(home.runs / "a")), listener)


def finish(journal: Journal, name: str, **details: object) -> None:
    journal.finish(entry(name, False, 1.0, None, StepResult(details=details)))


def test_every_finished_step_is_in_the_file_at_once(journal: Journal, home: Home):
    for number, name in enumerate(("make_items", "round-1/validate"), start=1):
        finish(journal, name)
        assert len(read_status(home, "a").steps) == number
    assert read_status(home, "a") == journal.status


def test_what_a_step_warns_of_is_in_the_status(journal: Journal, home: Home):
    finish(journal, "round-1/check_recorded", warnings=["2.1 nats off"])
    assert read_status(home, "a").warnings == ["2.1 nats off"]


def test_an_early_sign_is_a_warning_that_names_its_step(journal: Journal, home: Home):
    finish(journal, "round-2/train", signs=["Entropy fell."], warnings=["2.1 nats off"])
    assert read_status(home, "a").warnings == ["2.1 nats off", "round-2/train: Entropy fell."]


def test_the_status_shows_environment_errors_and_their_log(journal: Journal, home: Home):
    finish(journal, "round-1/score", raised="the environment raised on 2 rows: KeyError: 'x' (my_env.py, line 31)")
    [warning] = read_status(home, "a").warnings
    assert warning.startswith("round-1/score: the environment raised on 2 rows: KeyError: 'x' (my_env.py, line 31)")
    assert str(home.logs / "verify.log") in warning


def test_an_error_that_ends_the_night_stands_in_its_status(journal: Journal, home: Home):
    with pytest.raises(DataError), journal.ended():
        raise DataError("no rows", "curation", "give it some")
    assert read_status(home, "a").error == "curation: no rows\n  -> give it some"


def test_who_watches_is_told_in_order(journal: Journal, listener: Listener):
    journal.start("round-1/train")
    journal.progress(1, 4, "loss 0.5")
    finish(journal, "round-1/train")
    assert listener.told == [
        ("started", "round-1/train"),
        ("progress", "round-1/train", 1, 4, "loss 0.5"),
        ("finished", "round-1/train"),
    ]


def test_watching_ends_with_its_block(listener: Listener):
    before = watcher()
    with watched_by(listener):
        assert watcher() is listener
    assert watcher() is before


def models(**success: float | None) -> dict:
    return {
        role: {"policy_version": role, "success": value, "low": 0.1, "high": 0.9, "n": 50, "slices": {}}
        for role, value in success.items()
    }


def test_a_promoted_night_has_figures_and_a_model(journal: Journal, home: Home):
    finish(journal, "gate", decision="PROMOTE", reasons=["better"], models=models(base=0.2, candidate=0.6))
    finish(journal, "register", model={"name": "agent", "version": "2", "digest": "d"})
    finish(journal, "promote", aliases=["champion"])
    status = conclude(journal.status)
    assert (status.verdict, status.reasons, status.policy_version) == ("PROMOTE", ["better"], "candidate")
    assert status.model is not None
    assert (status.model.version, status.model.aliases) == ("2", ["champion"])
    assert status.heldout["champion"] is None
    assert status.heldout["candidate"] is not None
    assert status.heldout["candidate"].model_dump() == {"success": 0.6, "low": 0.1, "high": 0.9, "n": 50, "log_prob": None}
    journal.save()
    assert read_status(home, "a") == status


def test_figures_that_could_not_be_computed_are_absent(journal: Journal):
    finish(journal, "gate", decision="HOLD", reasons=["errors"], models=models(base=0.2, champion=0.3, candidate=None))
    status = conclude(journal.status)
    assert status.heldout["candidate"] is None
    assert status.heldout["champion"] is not None
    assert status.model is None


def test_a_registered_night_that_was_not_promoted_has_no_alias(journal: Journal):
    finish(journal, "gate", decision="HOLD", reasons=["too few"], models=models(base=0.2, candidate=0.3))
    finish(journal, "register", model={"name": "agent", "version": "2", "digest": "d"})
    model = conclude(journal.status).model
    assert model is not None
    assert model.aliases == []
    assert Path(journal.run_dir, "status.json").exists()


def test_training_without_effect_is_a_warning_and_first_reason(journal: Journal, home: Home):
    finish(journal, "round-1/train", nothing_learnt="the gradient was 0 in all of 4 updates: nothing was learnt")
    finish(journal, "round-2/train", nothing_learnt=None)
    said = "round-1/train: the gradient was 0 in all of 4 updates: nothing was learnt"
    assert read_status(home, "a").warnings == [said]  # at once, not at the night's end
    finish(journal, "gate", decision="HOLD", reasons=["no better"], models=models(base=0.2, candidate=0.2))
    assert conclude(journal.status).reasons == [said, "no better"]


def run_through(home: Home, steps: list[tuple[str, str | None, float, bool]]) -> NightStatus:
    """Run the night `a` with steps given by name, key, seconds and whether they were cached."""
    journal = Journal(NightStatus(night="a", run_dir=str(home.runs / "a")), NullWatcher())
    for name, key, seconds, cached in steps:
        journal.finish(entry(name, cached, seconds, key, StepResult()))
        assert journal.status.rerun_seconds is None  # there may be work left
    journal.status.verdict = "HOLD"
    journal.save()
    return journal.status


def test_a_rerun_keeps_work_times_and_is_marked_as_a_rerun(home: Home):
    """Status and report once showed 18.8 s instead of 713 s."""
    first = run_through(home, [("make_items", "k1", 5.0, False), ("record_look", None, 0.5, False), ("train", "k2", 700.0, False)])
    assert first.rerun_seconds is None
    again = [("make_items", "k1", 0.1, True), ("record_look", None, 0.2, False), ("train", "k2", 0.1, True)]
    for _ in range(2):
        second = run_through(home, again)
        assert [(step.seconds, step.state) for step in second.steps] == [(5.0, "cached"), (0.5, "ran"), (700.0, "cached")]
        assert second.seconds == first.seconds
        assert second.rerun_seconds is not None
    assert read_status(home, "a") == second


def test_a_night_that_was_killed_counts_the_work_of_all_its_runs(home: Home):
    run_through(home, [("make_items", "k1", 5.0, False)])
    earlier = read_status(home, "a").seconds
    second = run_through(home, [("make_items", "k1", 0.1, True), ("train", "k2", 700.0, False)])
    assert [step.seconds for step in second.steps] == [5.0, 700.0]
    assert second.rerun_seconds is None
    assert second.seconds >= earlier


def test_a_rerun_keeps_accelerator_seconds(home: Home):
    for cached, seconds in ((False, 600.0), (True, 0.0)):
        journal = Journal(NightStatus(night="a", run_dir=str(home.runs / "a")), NullWatcher())
        journal.finish(entry("train", cached, 700.0, "k", StepResult(), seconds))
        assert journal.status.steps[0].accelerator_seconds == 600


def test_repeated_and_shared_steps_have_their_time_in_this_night(home: Home):
    run_through(home, [("make_items", "k1", 5.0, False), ("train", "k2", 700.0, False)])
    status = run_through(home, [("make_items", "other", 0.1, True), ("train", "k2", 600.0, False)])
    assert [step.seconds for step in status.steps] == [0.1, 600.0]
    (home.runs / "a" / "times.json").write_bytes(b"{")  # no result depends on it
    assert [step.seconds for step in run_through(home, [("train", "k2", 0.2, True)]).steps] == [0.2]


def test_a_finished_night_keeps_its_verdict_if_a_rerun_fails(journal: Journal, home: Home):
    finish(journal, "gate")
    journal.status.verdict = "HOLD"
    journal.save()
    (home.runs / "a" / LINEAGE).write_text("{}")  # written last
    again = Journal(NightStatus(night="a", run_dir=str(home.runs / "a")), NullWatcher())
    with pytest.raises(DataError), again.ended():
        raise DataError("the champion is lost")
    assert (read_status(home, "a").verdict, read_status(home, "a").error) == ("HOLD", None)
