"""A night in a real MLflow."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow import MlflowClient

from clawpipe.record.registry.runs import NightRun, record_night
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.tracking.mlflow_sink import MlflowSink

ONE, TWO, THREE = ({"step": step, "loss": 1.0 / step, "lp": -1.0} for step in (1, 2, 3))
NIGHT = "2030-01-02-abc"


@pytest.fixture
def new_sink(tracking):
    return lambda: MlflowSink(tracking, NIGHT, {"train": {"learning_rate": 0.1, "method": "sft"}}, lambda: "sft from tiny")


@pytest.fixture
def client(tracking) -> MlflowClient:
    return MlflowClient(tracking_uri=tracking.uri, registry_uri=tracking.uri)


def runs(client: MlflowClient, tracking: Tracking) -> list:
    """Newest first."""
    experiment = client.get_experiment_by_name(tracking.model_name)
    return client.search_runs([experiment.experiment_id], order_by=["attributes.start_time DESC"])


def curve(client: MlflowClient, run) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, "loss/total")]


def test_a_night_is_one_run_however_often_it_was_killed(tell, new_sink, client, tracking):
    tell(new_sink()).updated("round-1", ONE, TWO)
    night = tell(new_sink())
    night.updated("round-1", TWO, THREE)
    night.trained("round-1", [ONE, TWO, THREE])
    night = tell(new_sink())
    night.trained("round-1", [ONE, TWO, THREE])
    night.trained("round-2", [ONE])
    verdict = night.judged()
    night.tracker.close(failed=False)

    [run] = runs(client, tracking)
    assert (run.info.run_name, run.info.status) == (f"{NIGHT} sft", "FINISHED")
    assert run.data.params == {"train.learning_rate": "0.1", "train.method": "sft"}
    assert curve(client, run) == [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3)), (4, 1.0)]
    assert [point.value for point in client.get_metric_history(run.info.run_id, "step")] == [1, 2, 3, 4]
    assert [point.value for point in client.get_metric_history(run.info.run_id, "round")] == [1, 1, 1, 2]
    assert run.data.metrics["heldout/candidate"] == verdict.models["candidate"].success
    assert run.data.metrics["gate/effect"] == 0.5


def test_a_run_is_described_by_its_verdict(tell, new_sink, client, tracking):
    """And tags that people read come first: MLflow lists a run's in the order of their making."""
    night = tell(new_sink())
    night.updated("round-1", ONE)
    assert runs(client, tracking)[0].data.tags["verdict"] == "none yet"
    night.trained("round-1", [ONE])
    night.judged()
    tags = runs(client, tracking)[0].data.tags
    assert (tags["verdict"], tags["method"]) == ("PROMOTE", "sft")
    assert tags["mlflow.note.content"].startswith("**PROMOTE**: sft from tiny\n\n- base: 0.")
    assert [name for name in tags if not name.startswith("mlflow.")][:3] == ["verdict", "method", "clawpipe.run_key"]


def test_probes_stand_at_their_steps_once(tell, new_sink, client, tracking):
    for _ in range(2):
        night = tell(new_sink())
        night.trained("round-1", [ONE, TWO, THREE])
        night.probed("round-1", {"step": 2, "success": 0.25, "items": 4}, {"step": 3, "success": 0.5, "items": 4})
        night.judged()
    [run] = runs(client, tracking)
    sink = new_sink()
    sink.open(1)
    sink.probed({2: {"probe/success": 0.25}})  # of a night that was killed before it could note it down
    points = client.get_metric_history(run.info.run_id, "probe/success")
    assert [(point.step, point.value) for point in points] == [(2, 0.25), (3, 0.5)]
    assert run.data.metrics["step"] == 3


def test_the_registry_knows_the_same_run(tell, new_sink, client, tracking):
    night = tell(new_sink())
    night.trained("round-1", [ONE])
    night.judged()
    assert record_night(tracking, NightRun(night=NIGHT)) == runs(client, tracking)[0].info.run_id


def test_a_night_that_failed_says_so_until_it_is_taken_up(tell, new_sink, client, tracking):
    night = tell(new_sink())
    night.updated("round-1", ONE)
    night.tracker.close(failed=True)
    assert runs(client, tracking)[0].info.status == "FAILED"
    tell(new_sink()).updated("round-1", TWO)
    assert runs(client, tracking)[0].info.status == "RUNNING"


def test_another_result_of_the_same_night_gets_a_run_of_its_own(tell, new_sink, client, tracking):
    night = tell(new_sink())
    night.trained("round-1", [ONE], weights=0.1)
    night.trained("round-2", [ONE, TWO], weights=0.2)
    night = tell(new_sink())
    night.trained("round-1", [ONE], weights=0.1)
    changed = [{**ONE, "loss": 7.0}, {**TWO, "loss": 8.0}]
    night.updated("round-2", *changed)
    night.trained("round-2", changed, weights=0.3)
    night.judged()
    new, old = runs(client, tracking)
    assert curve(client, old) == [(1, 1.0), (2, 1.0), (3, 0.5)]
    assert curve(client, new) == [(1, 1.0), (2, 7.0), (3, 8.0)]
    assert ("heldout/candidate" in new.data.metrics, "heldout/candidate" in old.data.metrics) == (True, False)

    night = tell(new_sink())
    night.trained("round-1", [ONE], weights=0.1)
    night.trained("round-2", changed, weights=0.3)
    assert len(runs(client, tracking)) == 2


def test_adapters_become_artifacts_once(tell, new_sink, client, tracking, tmp_path):
    for _ in range(2):
        tell(new_sink(), checkpoints=True).trained("round-1", [ONE], weights=0.25)
    [run] = runs(client, tracking)
    copy = client.download_artifacts(run.info.run_id, "checkpoints/round-1/adapter_model.safetensors", str(tmp_path))
    assert Path(copy).read_text() == "0.25"


def test_values_that_are_no_numbers_are_left_out(tell, new_sink, client, tracking):
    tell(new_sink()).trained("round-1", [{**ONE, "entropy": float("nan"), "kl": float("inf")}])
    [run] = runs(client, tracking)
    assert {"entropy", "kl"}.isdisjoint(run.data.metrics)


def test_a_server_that_is_away_is_said_at_once(tell, home, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:9")  # the discard port: nobody listens
    night = tell(MlflowSink(Tracking.of(home, "agent"), NIGHT, {}, str))
    night.trained("round-1", [ONE, TWO])
    night.judged()
    [warning] = night.warnings
    assert warning.startswith("MLflow did not get optimizer step 1 ")
    assert "unset MLFLOW_TRACKING_URI" in warning
    assert "secret" not in warning
