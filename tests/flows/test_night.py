"""What a night tells its caller, and the nights that differ from the usual one."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, FlowRunFilterName
from prefect.client.schemas.sorting import FlowRunSort

from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_ref, publish_dataset, read_dataset
from clawpipe.core.store.files import exclusive
from tests.permissions import bits, open_to_others, private_files, umask
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

USAGE, DATA, AGAIN = 2, 65, 75  # exit codes
ROUND = ("generate_rollouts", "validate", "score", "curate", "train")
STEPS = [
    *("check_model", "make_items", "draw_heldout"),
    *(f"round-1/{step}" for step in ROUND),
    *(f"round-2/{step}" for step in (*ROUND[:3], "compare_rounds", *ROUND[3:])),
    *(f"measure/{step}" for step in (*ROUND[:3], "compare_rounds")),
    *("choose_round", "record_look", "evaluate/base", "evaluate/candidate", "gate", "register", "promote", "publish_lineage"),
]
CHUNKS = [f"{part}/generate_rollouts/{chunk}" for part in ("round-1", "round-2", "measure") for chunk in range(1, 5)]
EVERY_TIME = {"record_look": "ran", "publish_lineage": "ran"}
PROGRESS = re.compile(r"  [a-z0-9-]+(/[a-z_]+)? +(ran|cached|stopped) +[0-9.]+ s(  .*)?|  [a-z_]+ +(ran|cached|stopped) .*")


def states(status: dict) -> dict[str, str]:
    return {step["name"]: step["state"] for step in status["steps"]}


def snapshot(root: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file and directory."""
    paths = [root, *root.rglob("*")] if root.exists() else []
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


# ---- what a program reads


def test_stdout_holds_the_status_and_stderr_one_line_a_step(finished):
    status = finished.done.json
    lines = finished.done.stderr.splitlines()
    assert [line.split()[0] for line in lines] == STEPS
    assert all(PROGRESS.fullmatch(line) for line in lines), finished.done.stderr
    assert states(status) == dict.fromkeys(STEPS, "ran")


@pytest.mark.long
def test_a_night_in_processes_of_its_own_is_the_same(new_clawpipe, finished):
    """`finished` ran in forks of one process that had imported everything."""
    clawpipe = new_clawpipe("cold")
    done = clawpipe.cold.run()
    assert done.code == 0, done.stdout + done.stderr
    assert [line.split()[0] for line in done.stderr.splitlines()] == STEPS
    assert all(PROGRESS.fullmatch(line) for line in done.stderr.splitlines()), done.stderr
    assert (clawpipe.artifacts(), clawpipe.curves()) == (finished.artifacts, finished.curves)
    assert clawpipe.leftovers() == []


@pytest.mark.long
def test_a_home_is_closed_to_other_users(new_clawpipe, tmp_path):
    """With a Prefect server of the night's own, whose database is in the home."""
    clawpipe = replace(new_clawpipe("closed").cold, api="")
    said = [{"role": "user", "content": "How many?"}, {"role": "assistant", "content": "Seven."}]
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": said, "session_id": "a"}) + "\n")
    assert clawpipe("ingest", str(tmp_path / "chats.jsonl")).code == 0
    clawpipe.night("rounds=1")
    for written in ("store/trajectories", "store/adapter", "runs", "steps", "mlflow/mlflow.db", "prefect/prefect.db", "logs"):
        assert (clawpipe.home.root / written).exists(), written
    assert open_to_others(clawpipe.home.root) == []
    exported = tmp_path / "exported"
    assert clawpipe("models", "export", "clawpipe-tiny@1", "--output", str(exported), "--format", "adapter").code == 0
    assert open_to_others(clawpipe.home.root) == []
    usual = 0o666 & ~umask()
    assert {bits(path) for path in exported.iterdir()} == {usual}


def test_status_has_the_promised_fields(finished):
    status = finished.status
    assert set(status) == {
        *(
            "run",
            "night",
            "compared",
            "measure",
            "verdict",
            "reasons",
            "steps",
            "heldout",
            "benchmark",
            "evidence_left",
            "choice",
            "judges",
            "reviews",
            "model",
            "policy_version",
            "warnings",
            "error",
            "exit_code",
            "trace_id",
            "seconds",
            "rerun_seconds",
            "run_dir",
        ),
    }
    for step in status["steps"]:
        assert set(step) >= {"name", "state", "seconds", "rows_in", "rows_out", "filtered"}
        assert isinstance(step["seconds"], float)
        assert all(isinstance(count, int) for count in step["filtered"].values())
        if step["name"].split("/")[-1] in ("validate", "curate", "train", "base", "candidate"):
            assert step["rows_in"] == step["rows_out"] + sum(step["filtered"].values())
    assert set(status["heldout"]) == {"base", "champion", "candidate"}
    assert status["heldout"]["champion"] is None
    for role in ("base", "candidate"):
        figures = status["heldout"][role]
        assert set(figures) == {"success", "low", "high", "n", "log_prob"}
        assert figures["log_prob"] is None  # of held-out conversations alone
        assert figures["low"] <= figures["success"] <= figures["high"]
        assert figures["n"] == 60
    assert set(status["model"]) == {"name", "version", "digest", "aliases"}
    assert (status["model"]["name"], status["model"]["version"], status["model"]["aliases"]) == ("clawpipe-tiny", "1", ["champion"])
    assert Path(status["run_dir"]) == finished.clawpipe.home.runs / status["night"]
    assert status["seconds"] > 0
    for name in ("night.json", "config.json", "status.json", "lineage.json", "report.html"):
        assert (Path(status["run_dir"]) / name).stat().st_size


def test_status_prints_what_run_printed(finished):
    shown = finished.clawpipe("status", "--json", "--night", finished.status["night"])
    again = finished.clawpipe.run()
    latest = finished.clawpipe("status", "--json")
    assert (shown.code, again.code, latest.code) == (0, 0, 0)
    assert shown.json["heldout"] == finished.status["heldout"]
    run = finished.clawpipe("runs", "show", "--json").json
    assert ({"run": run["id"], **latest.json}, latest.stderr) == (again.json, "")


def test_the_same_command_again_is_all_cached(finished):
    status = finished.clawpipe.night()
    assert states(status) == dict.fromkeys(STEPS, "cached") | EVERY_TIME
    # What is left of the held-out items is the home's, not the night's: other nights of this home have looked since.
    volatile = ("run", "seconds", "rerun_seconds", "steps", "evidence_left")
    assert {name: value for name, value in status.items() if name not in volatile} == {
        name: value for name, value in finished.status.items() if name not in volatile
    }
    assert finished.clawpipe.leftovers() == []


def test_plan_of_a_new_night_writes_nothing(new_clawpipe):
    clawpipe = new_clawpipe("planned")
    before = snapshot(clawpipe.root)
    plan = clawpipe.cold("plan", *clawpipe.options())  # importing Prefect writes files as well
    assert (plan.code, plan.stderr) == (0, "")
    assert set(plan.json) == {"night", "config", "notes", "rate", "steps"}
    check, items, *later = plan.json["steps"]
    assert (check["would"], items["would"]) == ("run", "run")
    assert re.fullmatch("check_model-[0-9a-f]{40} make_items-[0-9a-f]{40}", f"{check['key']} {items['key']}")
    assert [step["name"] for step in later] == STEPS[2:]
    assert {(step["key"], step["would"]) for step in later} == {(None, "run")}
    assert snapshot(clawpipe.root) == before


def test_plan_of_a_night_that_ran_is_cached_and_touches_nothing(finished):
    clawpipe = finished.clawpipe
    clawpipe.night()
    before = snapshot(clawpipe.root)
    plan = clawpipe("plan", *clawpipe.options())
    assert (plan.code, plan.stderr) == (0, "")
    assert [(step["name"], step["key"]) for step in plan.json["steps"]] == [
        (step["name"], step["key"]) for step in finished.status["steps"]
    ]
    assert {step["name"] for step in plan.json["steps"] if step["would"] == "run"} == set(EVERY_TIME)
    assert plan.json["night"] == finished.status["night"]
    assert snapshot(clawpipe.root) == before


@pytest.mark.parametrize(
    ("words", "code", "error", "what"),
    [
        (("run", "-c", "nowhere.yaml"), USAGE, "NotFoundError", "the config file does not exist"),
        (("run", "-o", "rounds=0"), USAGE, "ConfigError", "rounds"),
        (("run", "-o", f"trajectories=[{'0123abcd' * 8}]"), DATA, "DataError", "missing or damaged"),
        (("run", "-o", "trajectories=[0123abcd]"), USAGE, "NotFoundError", "no such dataset"),
        (("plan", "-o", "train.methd=sft"), USAGE, "ConfigError", "train.methd"),
        (("status", "--night", "nowhere"), USAGE, "NotFoundError", "nowhere"),
        (("status", "--night", "../../etc"), USAGE, "NotFoundError", "cannot be a night"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_failure_is_an_object_with_its_exit_code(finished, words, code, error, what):
    command, *rest = words
    config = [] if "-c" in words or command == "status" else ["-c", str(finished.clawpipe.options()[1])]
    failed = finished.clawpipe(command, *config, *rest, "--json")
    assert failed.code == code
    assert set(failed.json) == {"error", "what", "where", "fix", "exit_code"}
    assert (failed.json["error"], failed.json["exit_code"]) == (error, code)
    assert what in failed.json["what"]
    assert failed.stderr == ""


def test_prefect_names_runs_after_the_night_and_its_steps(finished, prefect_api):
    """Pages were full of names like `wandering-otter` and seven times `train-3f2`."""
    named = FlowRunFilter(name=FlowRunFilterName(any_=[finished.status["night"]]))
    with get_client(sync_client=True) as client:
        first = client.read_flow_runs(flow_run_filter=named, sort=FlowRunSort.START_TIME_ASC)[0]
        its = FlowRunFilter(id=FlowRunFilterId(any_=[first.id]))
        wait_until(lambda: {run.name for run in client.read_task_runs(flow_run_filter=its)} == {*STEPS, *CHUNKS}, 30.0)


def test_a_nights_own_server_records_all_before_it_ends(finished):
    """A server forgets the task runs that it has not recorded when it ends: now and then a third of those of a cached night."""
    alone = replace(finished.clawpipe, api="")
    assert states(alone.night()) == dict.fromkeys(STEPS, "cached") | EVERY_TIME
    with closing(sqlite3.connect(alone.home.prefect / "prefect.db")) as database:
        recorded = database.execute("select name, state_type from task_run").fetchall()
    assert sorted(recorded) == sorted((name, "COMPLETED") for name in (*STEPS, *CHUNKS))


# ---- trackers


def test_tracking_changes_nothing_and_may_be_switched_on_later(finished, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    status = finished.clawpipe.night("tracking.wandb=retraining", "tracking.checkpoints=true")
    assert states(status) == dict.fromkeys(STEPS, "cached") | EVERY_TIME
    assert (status["night"], status["warnings"]) == (finished.status["night"], [])
    assert len(list(Path(status["run_dir"]).glob("wandb/offline-run-*/run-*.wandb"))) == 1
    adapters = finished.clawpipe.home.mlflow.glob("artifacts/*/artifacts/checkpoints/*/adapter_model.safetensors")
    assert sorted(path.parent.name for path in adapters) == ["round-1", "round-2"]


def test_a_tracker_that_is_away_is_a_warning(finished, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    done = finished.clawpipe.run("tracking.wandb=retraining")
    assert done.code == 0
    [warning] = done.json["warnings"]
    assert "WANDB_API_KEY" in warning
    assert sum("warning: W&B did not get" in line for line in done.stderr.splitlines()) == 1


# ---- two at once


def test_a_second_night_on_the_same_home_is_refused_at_once(finished):
    clawpipe = finished.clawpipe
    before = clawpipe.artifacts(), clawpipe.registered(), clawpipe.moves()
    with clawpipe.cold.started("run", *clawpipe.options()) as first:
        lock = clawpipe.home.locks / "run-clawpipe-tiny.lock"
        while lock.read_text() != str(first.pid):  # written once it is held
            assert first.poll() is None
        os.kill(first.pid, signal.SIGSTOP)
        second = clawpipe.run("night=second")
        os.kill(first.pid, signal.SIGCONT)
        stdout, stderr = first.communicate(timeout=300)
    assert (second.code, second.json["error"]) == (AGAIN, "BusyError")
    assert f"process {first.pid}" in second.json["what"]
    assert second.stderr == ""
    assert first.returncode == 0, stdout + stderr
    assert (clawpipe.artifacts(), clawpipe.registered(), clawpipe.moves()) == before
    assert not list(clawpipe.home.runs.glob("second-*"))


def test_a_night_of_a_deployment_counts_too(finished):
    """Deployed nights are not started by `clawpipe run`; they hold the night's own lock."""
    with exclusive(finished.clawpipe.home.locks / "night.lock", "the home"):
        refused = finished.clawpipe.run()
    assert (refused.code, refused.json["error"]) == (AGAIN, "BusyError")
    assert f"process {os.getpid()}" in refused.json["what"]


# ---- other nights


def test_sft_is_one_line_of_config(finished):
    status = finished.clawpipe.night("night=sft", "draw=tiny", "train.method=sft", "registry.model_name=sft")
    shared = [
        "check_model",
        "make_items",
        "draw_heldout",
        "round-1/generate_rollouts",
        "round-1/validate",
        "round-1/score",
        "evaluate/base",
    ]
    assert {step for step, state in states(status).items() if state == "cached"} == set(shared)
    [curated] = [step for step in status["steps"] if step["name"] == "round-1/curate"]
    assert 0 < curated["rows_out"] < curated["rows_in"]  # successes only
    assert curated["rows_in"] == curated["rows_out"] + sum(curated["filtered"].values())
    assert status["verdict"] in ("PROMOTE", "HOLD", "REJECT")
    assert status["policy_version"] != finished.status["policy_version"]


def test_a_night_on_stored_trajectories_rolls_nothing_out(finished):
    [stored] = [step["digest"] for step in finished.status["steps"] if step["name"] == "round-1/generate_rollouts"]
    status = finished.clawpipe.night(
        *("night=stored", "draw=tiny", "rollouts=null", f"trajectories=[{stored}]", "rounds=1", "registry.model_name=stored")
    )
    steps = states(status)
    assert "round-1/generate_rollouts" not in steps
    assert (steps["make_items"], steps["round-1/validate"], steps["round-1/train"]) == ("cached", "cached", "ran")
    assert status["verdict"] in ("PROMOTE", "HOLD", "REJECT")


def test_stored_log_probs_of_another_policy_end_the_night(finished):
    [digest] = [step["digest"] for step in finished.status["steps"] if step["name"] == "round-1/generate_rollouts"]
    store = Store(finished.clawpipe.home.store)
    rows = read_dataset(store, dataset_ref(store, "trajectories", digest)).to_pylist()
    for row in rows:
        row["logprobs"] = [value - 0.5 * sampled for value, sampled in zip(row["logprobs"], row["loss_mask"], strict=True)]
    with private_files():
        wrong = publish_dataset(store, "trajectories", [pa.Table.from_pylist(rows, schema_of("trajectories"))])
    words = ("night=wrong", "draw=tiny", "rollouts=null", f"trajectories=[{wrong.digest}]", "rounds=1")
    done = finished.clawpipe.run(*words)
    assert done.code == 65, done.stdout + done.stderr
    assert "are 0.50 nats per token from its own (mean ratio 1.65, 99 % within 0.5, " in done.stdout + done.stderr


def test_a_night_with_nothing_to_learn_uses_no_held_out_question(finished):
    greedy = "rollouts.temperature=0.0001"  # all rollouts of a group are the same
    done = finished.clawpipe.run("night=flat", "rounds=1", greedy, "registry.model_name=flat")
    assert (done.code, done.json["error"]) == (DATA, "DataError")
    assert re.search(r"none was left for grpo to train on \(\d+ x zero-variance group", done.json["what"])
    assert "rollouts.temperature" in done.json["fix"]
    [night] = finished.clawpipe.home.runs.glob("flat-*")
    status = finished.clawpipe("status", "--json", "--night", night.name).json
    assert (status["verdict"], status["model"]) == (None, None)
    assert done.json["what"] in status["error"]
    assert list(states(status)) == [
        *(f"round-1/{step}" if step in ROUND else step for step in ("check_model", "make_items", "draw_heldout", *ROUND[:-1]))
    ]
    assert finished.clawpipe.registered("flat") == {}


def test_a_curriculum_advances_each_night_but_not_on_a_rerun(finished):
    bands = "curation.sampling.curriculum=[{high: 1.0}, {low: 0.15}]"
    settings = (bands, "rounds=1", "registry.model_name=curriculum")
    nights = [finished.clawpipe.night(f"night={label}", *settings) for label in ("first", "second", "first")]
    learnt = [next(step for step in night["steps"] if step["name"] == "round-1/curate") for night in nights]
    config = [json.loads((Path(night["run_dir"]) / "config.json").read_text()) for night in nights]
    assert [settings["curation"]["sampling"]["night"] for settings in config] == [1, 2, 1]
    assert [step["state"] for step in learnt] == ["ran", "ran", "cached"]
    assert ["outside the difficulty band" in step["filtered"] for step in learnt] == [False, True, False]
