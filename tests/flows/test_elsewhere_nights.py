"""Whole nights whose policy is trained at a service, killed as they train, against one night that trains on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from clawpipe.core.store.artifacts import Store
from clawpipe.model.policy.base import resolve_base

pytest.importorskip("tinker")
from tests.fake_tinker import FIREWORKS_KEY, KEY, FakeTinker, fake_tinker
from tests.fireworks_library import python_with_it

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.trains]
NIGHT = (
    *("rounds=1", "rollouts.items=8", "environment.heldout_items=20", "candidate=last"),
    *("train.optimizer_steps=2", "train.lora.alpha=32", "train.loss.dual_clip=null", "train.adam_beta2=0.95"),
)
# The first child ends with the second step; at Fireworks the next one does when its model is made, and the third is left in peace.
KILLS = {
    "tinker": "tinker.answered/optim_step#2",
    "fireworks": "fireworks.answered/step#2,fireworks.answered/promote#1",
}


@pytest.fixture(scope="module")
def service() -> Iterator[FakeTinker]:
    with fake_tinker({"tiny": str(resolve_base("random").path)}) as fake:
        yield fake


@pytest.fixture(scope="module")
def here(new_clawpipe) -> dict:
    return trained(new_clawpipe("here"))


@pytest.fixture
def backends(service, tmp_path, monkeypatch) -> dict[str, str]:
    """The settings of each backend, with its key in the environment."""
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    monkeypatch.setenv("FIREWORKS_API_KEY", FIREWORKS_KEY)
    python = os.environ.get("CLAWPIPE_FIREWORKS_PYTHON") or python_with_it(tmp_path)
    return {
        "tinker": f"{{name: tinker, url: '{service.url}', model: tiny}}",
        "fireworks": f"{{name: fireworks, url: '{service.url}', model: tiny, options: {{python: {python}}}}}",
    }


def trained(clawpipe, *settings: str, kill_at: str = "") -> dict:
    """The training of a night that comes to its verdict: digests before it, metrics of its steps, and the adapter."""
    done = clawpipe.run(*NIGHT, *settings, kill_at=kill_at)
    assert done.code == 0, done.stdout + done.stderr
    steps = {entry["name"]: entry for entry in done.json["steps"]}
    ref = steps["round-1/train"]["artifacts"]["output"]
    weights = Store(clawpipe.home.store).root / "adapter" / ref["digest"] / "adapter_model.safetensors"
    return {
        "before": {name: steps[f"round-1/{name}"]["digest"] for name in ("generate_rollouts", "score", "curate")},
        "updates": steps["round-1/train"]["details"]["updates"],
        "weights": load_file(weights),
        "verdict": done.json["verdict"],
    }


@pytest.mark.parametrize("name", KILLS)
def test_a_night_elsewhere_is_the_night_here(new_clawpipe, backends, here, service, name):
    taken, models, clawpipe = service.steps, len(service.promoted), new_clawpipe(name)
    there = trained(clawpipe, f"train.backend={backends[name]}", kill_at=KILLS[name])
    assert there["before"] == here["before"]
    assert there["verdict"] in ("PROMOTE", "HOLD", "REJECT")
    assert len(there["updates"]) == len(here["updates"]) == 2
    for metric in ("loss", "learning_rate", "grad_norm"):
        ours, theirs = ([step.get(metric) for step in one["updates"]] for one in (here, there))
        assert theirs == pytest.approx(ours, rel=1e-3, abs=1e-5), metric
    for weight, expected in here["weights"].items():
        torch.testing.assert_close(there["weights"][weight], expected, rtol=1e-3, atol=1e-5)
    assert service.steps - taken == 2 + 1  # the one whose saved state the kill took away
    assert list(service.promoted.values())[models:] == ([1] if name == "fireworks" else [])
    files = [path for path in clawpipe.home.root.rglob("*") if path.is_file()]
    assert not [path for path in files for key in (KEY, FIREWORKS_KEY) if key.encode() in Path(path).read_bytes()]
