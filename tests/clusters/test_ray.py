"""What clawpipe asks of Ray and where Ray's own notes go; a stub stands for it. Real heads and machines: benchmarks/machines.py."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from clawpipe.core.config.runtime import Runtime
from clawpipe.play.clusters.base import open_cluster

RAY = Runtime.model_validate({"task_runner": {"name": "ray", "address": "10.0.0.1:6379"}})


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """What Ray says of its machines."""
    told: list[dict] = []
    stub = SimpleNamespace(init=lambda **_: None, shutdown=lambda: None, nodes=lambda: told)
    stub.exceptions = SimpleNamespace(RayError=OSError)
    monkeypatch.setitem(sys.modules, "ray", stub)
    return told


def node(*, alive: bool = True, **resources: float) -> dict:
    return {"Alive": alive, "Resources": resources}


@pytest.mark.parametrize(
    ("machines", "count"),
    [
        ([node(CPU=8, GPU=4), node(CPU=8, GPU=2), node(alive=False, GPU=8)], 6),
        ([node(CPU=0), node(CPU=2), node(CPU=16)], 2),  # the head does no work
        ([node(CPU=0)], 1),  # somebody may join
    ],
)
def test_its_accelerators_are_counted(nodes: list[dict], machines: list[dict], count: int):
    nodes += machines
    with open_cluster(RAY) as cluster:
        assert cluster
        assert cluster.accelerators() == count


@pytest.mark.usefixtures("nodes")
def test_what_ray_prints_leaves_stdout_alone(capsys: pytest.CaptureFixture[str]):
    """It prints there that a worker died, where `clawpipe run --json` writes the night's status."""
    with open_cluster(RAY):
        print("(raylet) A worker died")
    print("{}")
    assert capsys.readouterr() == ("{}\n", "(raylet) A worker died\n")
