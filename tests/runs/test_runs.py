"""Runs: what is recorded of them, what a killed one looks like, how one is stopped, and what was measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from clawpipe.core.store.home import Home
from clawpipe.errors import BusyError, ConfigError, DataError, NotFoundError
from clawpipe.record.nights.files import run_dir
from clawpipe.record.nights.journal import Journal, NullWatcher
from clawpipe.record.nights.status import NightStatus, StepEntry, write_status
from clawpipe.record.runs import listing, recording
from clawpipe.record.runs.listing import find_run, list_runs, newest_run
from clawpipe.record.runs.logs import follow, last_lines, readable
from clawpipe.record.runs.record import ProcessId, Run, read_record, record_ids, records, write_record
from clawpipe.record.runs.recording import recorded
from clawpipe.record.runs.results import results_of
from clawpipe.record.runs.stop import stop_run
from tests.waiting import wait_until

# A run with a child in a session of its own that ignores Ctrl-C, as does the run itself if it is told to.
_RUN = """
import signal, subprocess, sys
from clawpipe.record.runs.recording import recorded
from clawpipe.core.store.home import Home
with recorded(Home.from_env(), {"night": "monday", "model": "shop"}) as recorder:
    if "deaf" in sys.argv:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    print(recorder.run.id, child.pid, flush=True)
    child.wait()
"""


@contextmanager
def running(*words: str) -> Iterator[tuple[subprocess.Popen[str], str, psutil.Process]]:
    """A run in a process of its own, its id and its child."""
    with subprocess.Popen([sys.executable, "-c", _RUN, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        run_id, child = process.stdout.readline().split()
        try:
            yield process, run_id, psutil.Process(int(child))
        finally:
            process.kill()
            if psutil.pid_exists(int(child)):
                os.kill(int(child), signal.SIGKILL)


def entry(name: str, **details) -> StepEntry:
    return StepEntry(name=name, state="ran", seconds=1.0, rows_in=4, rows_out=3, filtered={}, key="k", digest=None, details=details)


def begun(home: Home, night: str) -> Journal:
    """The journal of a night that begins."""
    status = NightStatus(night=night, run_dir=str(run_dir(home, night)))
    write_status(status)
    (run_dir(home, night) / "night.json").write_text("{}")
    return Journal(status, NullWatcher())


def test_a_run_is_recorded_from_its_beginning_to_its_end(home: Home):
    with recorded(home, {"night": "monday", "model": "shop"}) as recorder:
        first = find_run(home, recorder.run.id)
        journal = begun(home, "monday-1")
        recorder.follow(journal)
        journal.start("gate")
        second = find_run(home, "monday-1")
        journal.finish(entry("gate", decision="HOLD"))
    last = read_record(home, first.id)
    assert [first.state, second.state, last.state] == ["starting", "running", "completed"]
    assert (first.night, second.step, last.verdict) == ("monday", "gate", "HOLD")
    assert last.ended
    assert first.process == ProcessId.own()


@pytest.mark.parametrize(
    ("error", "state", "why"),
    [
        (DataError("no rows"), "failed", "no rows"),
        (KeyboardInterrupt(), "stopped", "interrupted"),
    ],
)
def test_how_a_run_ended_is_recorded(home: Home, error: BaseException, state: str, why: str):
    with pytest.raises(type(error)), recorded(home, {}):
        raise error
    run = newest_run(home)
    assert (run.state, run.why) == (state, why)


def test_a_deployed_run_that_finds_its_home_in_use_waits(home: Home):
    """Prefect lists it until its next try; what fails once its night has begun stays on record."""

    def try_(*journals: Journal) -> None:
        with recorded(home, {"started_by": "deployment", "flow_run": "f"}) as recorder:
            for journal in journals:
                recorder.follow(journal)
            raise BusyError("another night runs")

    with pytest.raises(BusyError):
        try_()
    assert list_runs(home) == []
    with pytest.raises(BusyError):
        try_(begun(home, "monday"))
    assert [(run.state, run.why) for run in list_runs(home)] == [("failed", "another night runs")]


@pytest.mark.parametrize("other", [{"host": "a-container-before"}, {"space": "of another container with this host name"}])
def test_a_run_of_another_container_is_judged_by_its_silence(home: Home, other: dict[str, str]):
    """Nobody can look for the process of another container, be it one of before or one beside this one with the same name."""
    own = ProcessId.own().model_copy(update=other)
    write_record(home, Run(id="20261125T020000-3f9c", process=own, state="running"))
    assert newest_run(home).state == "running"
    old = time.time() - 600
    os.utime(records(home) / "20261125T020000-3f9c.json", (old, old))
    silent = newest_run(home)
    assert silent.state == "failed"
    assert silent.why == f"nothing is heard of it any more on {own.host}; the same command goes on where it was"


def test_a_run_renews_its_record(home: Home, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recording, "_RENEW_SECONDS", 0.01)
    with recorded(home, {}) as recorder:
        record = records(home) / f"{recorder.run.id}.json"
        os.utime(record, (0, 0))
        wait_until(lambda: record.stat().st_mtime > 0, 10)


def test_a_flow_within_a_run_goes_on_with_its_record(home: Home):
    with recorded(home, {"night": "monday"}) as outer, recorded(home, {"night": "other", "flow_run": "f"}) as inner:
        assert inner is outer
        assert (inner.run.night, inner.run.flow_run) == ("monday", "f")
    assert len(list_runs(home)) == 1


def test_a_killed_run_is_known_by_its_dead_process(home: Home):
    with running() as (process, run_id, _):
        assert find_run(home, run_id).state == "starting"
        process.kill()
        process.wait()
        run = find_run(home, run_id)
    assert run.state == "failed"
    assert "its process is gone" in str(run.why)


def test_another_process_with_the_number_is_not_the_run(home: Home):
    own = ProcessId.own()
    write_record(home, Run(id="a", process=own.model_copy(update={"started": own.started - 60}), state="running"))
    assert find_run(home, "a").state == "failed"
    assert stop_run(home, "a").state == "failed"  # and this process is still here


@pytest.mark.parametrize("words", [(), ("deaf",)])
def test_stop_ends_a_run_with_its_children(home: Home, words: tuple[str, ...]):
    with running(*words) as (process, run_id, child):
        stopped = stop_run(home, run_id, grace=0.5)
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
        assert process.wait(5) in (-signal.SIGKILL, 1, -signal.SIGINT)
    assert stopped.state == "stopped"
    assert stop_run(home, run_id) == stopped  # once more changes nothing


def test_a_run_of_another_machine_is_left_alone(home: Home):
    own = ProcessId.own()
    write_record(home, Run(id="a", process=own.model_copy(update={"host": "elsewhere"}), state="running"))
    with pytest.raises(ConfigError, match="the run is on elsewhere"):
        stop_run(home, "a")
    assert find_run(home, "a").state == "running"


def make_runs(home: Home) -> None:
    for number, (day, model, state) in enumerate([("24", "shop", "completed"), ("24", "chat", "failed"), ("25", "shop", "failed")]):
        started = f"2026-11-{day}T0{number}:00:00+00:00"
        write_record(home, Run(id=f"202611{day}T0{number}0000-0000", model=model, started=started, state=state))  # type: ignore[arg-type]


def test_lists_are_filtered_and_the_newest_come_first(home: Home):
    make_runs(home)
    assert [run.id[:11] for run in list_runs(home)] == ["20261125T02", "20261124T01", "20261124T00"]
    assert [run.id[:11] for run in list_runs(home, model="shop")] == ["20261125T02", "20261124T00"]
    assert [run.id[:11] for run in list_runs(home, state="failed", day="2026-11-24")] == ["20261124T01"]
    assert [run.id[:11] for run in list_runs(home, limit=2)] == ["20261125T02", "20261124T01"]


def test_only_what_is_listed_is_read(home: Home, monkeypatch: pytest.MonkeyPatch):
    make_runs(home)
    read: list[str] = []
    monkeypatch.setattr(listing, "read_record", lambda home, run_id: read.append(run_id) or read_record(home, run_id))
    list_runs(home, limit=1)
    list_runs(home, day="2026-11-24", limit=1)
    assert [run_id[:11] for run_id in read] == ["20261125T02", "20261124T01"]


def test_a_run_is_found_by_the_beginning_of_its_id(home: Home):
    make_runs(home)
    assert find_run(home, "20261125").model == "shop"
    with pytest.raises(NotFoundError, match="begins the ids of 2 runs"):
        find_run(home, "20261124")
    with pytest.raises(NotFoundError, match="no run 'x'"):
        find_run(home, "x")


def test_a_damaged_record_does_not_hide_the_others(home: Home):
    make_runs(home)
    (home.root / "run-records" / "20261125T030000-0000.json").write_text("{")
    damaged, *others = list_runs(home)
    assert damaged.why is not None
    assert "damaged" in damaged.why
    assert len(others) == 3


def test_a_run_that_is_withdrawn_meanwhile_is_left_out(home: Home, monkeypatch):
    """Prefect has a run wait again and again while its home is in use."""
    make_runs(home)
    monkeypatch.setattr("clawpipe.record.runs.listing.record_ids", lambda home: ["20261125T030000-0000", *record_ids(home)])
    assert len(list_runs(home)) == 3


def test_nights_from_before_there_were_records_are_listed(home: Home):
    for name, verdict, began in [("old", "PROMOTE", 100), ("killed", None, 200)]:
        journal = begun(home, name)
        journal.status.verdict = verdict
        journal.save()
        os.utime(run_dir(home, name), (began, began))
    with recorded(home, {"night": "new"}):
        pass
    assert [(run.night, run.state) for run in list_runs(home)] == [("new", "completed"), ("killed", "failed"), ("old", "completed")]
    assert find_run(home, "old").verdict == "PROMOTE"


def test_events_are_json_lines_with_ids(home: Home):
    with recorded(home, {}) as recorder:
        journal = begun(home, "monday")
        recorder.follow(journal)
        journal.start("curate")
        journal.finish(entry("curate"))
    file = Path(journal.run_dir) / "logs" / "night.jsonl"
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [event["event"] for event in events] == ["night started", "step started", "step ended", "night completed"]
    assert {(event["run"], event["night"]) for event in events} == {(recorder.run.id, "monday")}
    assert events[2]["step"] == "curate"
    lines = last_lines(home, find_run(home, recorder.run.id), 2)
    assert readable(lines[0]).endswith("step ended step=curate state=ran seconds=1.0 rows_in=4 rows_out=3")


def test_logs_are_followed_to_the_end_of_the_run(home: Home):
    with recorded(home, {}) as recorder:
        journal = begun(home, "monday")
        recorder.follow(journal)
        worker = Path(journal.run_dir) / "logs" / "worker.log"
        worker.write_text("one\ntwo\n")
        lines = follow(home, find_run(home, "monday"), 1)
        seen = [next(lines).text, next(lines).text]
        with worker.open("a") as file:
            file.write("three\nnot whole")
        seen.append(next(lines).text)
    rest = [line.text for line in lines]
    assert "night started" in seen[0]
    assert seen[1:] == ["two", "three"]
    assert ["night completed" in text for text in rest] == [True]


def test_results_hold_every_step_of_all_rounds_up_to_now(home: Home):
    with recorded(home, {}) as recorder:
        journal = begun(home, "monday")
        recorder.follow(journal)
        journal.finish(entry("round-1/train", updates=[{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0}]))
        journal.start("round-2/train")
        for step, loss in [(1, 1.5), (1, 1.25), (2, 1.0)]:  # killed after its first step, which it repeats
            journal.update({"step": step, "of": 4, "loss": loss})
        found = results_of(home, find_run(home, "monday"))
    assert found.metrics["loss/total"] == [(1, 3.0), (2, 2.0), (3, 1.25), (4, 1.0)]
    assert found.state == "running"


def test_results_of_a_night_that_has_not_begun_are_refused(home: Home):
    with recorded(home, {"night": "monday"}), pytest.raises(NotFoundError, match="has not begun"):
        results_of(home, newest_run(home))


def test_an_empty_home_says_what_would_fill_it(home: Home, capsys: pytest.CaptureFixture[str]):
    from clawpipe.cli.main import run

    with pytest.raises(SystemExit, match="0"):
        run(["runs", "list"])
    assert "`clawpipe run -c night.yaml` makes one" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        run(["runs", "show"])
    assert "no night has run here" in capsys.readouterr().err
    for words in (["--state", "dead"], ["--day", "monday"]):
        with pytest.raises(SystemExit, match="2"):
            run(["runs", "list", *words])
