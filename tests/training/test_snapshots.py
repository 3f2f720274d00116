"""Policies that a training keeps on its way."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawpipe.core.config.training import Train
from clawpipe.learn.training.request import SNAPSHOTS
from clawpipe.learn.training.run import train


def files(directory: Path) -> dict[str, bytes]:
    return {file.relative_to(directory).as_posix(): file.read_bytes() for file in sorted(directory.rglob("*")) if file.is_file()}


def test_the_policy_is_kept_after_every_few_steps(request_for, here):
    outcome = here(request_for("kept", train={"probe_steps": 2}))
    assert [path.name for path in sorted((outcome / SNAPSHOTS).iterdir())] == ["step-000002", "step-000004", "step-000006"]
    assert files(outcome / SNAPSHOTS / "step-000006") == files(outcome / "adapter")  # three optimizer steps, two epochs
    assert files(outcome / SNAPSHOTS / "step-000002") != files(outcome / "adapter")


def test_keeping_them_changes_nothing_that_is_trained(request_for, here):
    plain, kept = here(request_for("plain")), here(request_for("kept", train={"probe_steps": 1}))
    assert files(plain / "adapter") == files(kept / "adapter")
    assert not (plain / SNAPSHOTS).exists()


def test_a_run_that_resumes_keeps_the_same(request_for, here):
    whole = here(request_for("whole", train={"probe_steps": 1}))
    request = request_for("resumed", train={"probe_steps": 1})

    class PowerCutError(Exception): ...

    def end(metrics: dict[str, float]) -> None:
        if metrics["step"] == 5:
            raise PowerCutError

    with pytest.raises(PowerCutError):
        train(request, Path(request.output).parent, end)
    assert files(here(request) / SNAPSHOTS) == files(whole / SNAPSHOTS)


def test_those_of_another_run_are_removed(request_for, here):
    request = request_for("stale", train={"probe_steps": 4})
    stale = request.snapshots / "step-000001"
    stale.mkdir(parents=True)
    (stale / "adapter_model.safetensors").write_bytes(b"of other settings")
    assert [path.name for path in (here(request) / SNAPSHOTS).iterdir()] == ["step-000004"]


def test_whole_weights_are_kept_whole(request_for, here):
    outcome = here(request_for("full", train={"probe_steps": 6, "adapter": "full"}))
    assert files(outcome / SNAPSHOTS / "step-000006") == files(outcome / "model")


def test_a_training_without_probes_has_the_key_of_before():
    assert "probe_steps" not in Train().result_fields()
    assert "probe_steps" in Train(probe_steps=2).result_fields()
