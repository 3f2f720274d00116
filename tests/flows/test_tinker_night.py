"""A whole night whose policy is trained at a service: a fake of Tinker's API that really trains, see tests/fake_tinker.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file

from clawpipe.policy.base import resolve_base
from clawpipe.store.artifacts import Store

pytest.importorskip("tinker")
from tests.fake_tinker import KEY, FakeTinker, fake_tinker

pytestmark = [pytest.mark.slow, pytest.mark.trains]


@pytest.fixture(scope="module")
def service() -> Iterator[FakeTinker]:
    with fake_tinker({"tiny": str(resolve_base("random").path)}) as fake:
        yield fake


@pytest.fixture
def settings(service: FakeTinker, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    backend = f"train.backend={{name: tinker, url: '{service.url}', model: tiny}}"
    return (backend, "train.loss.dual_clip=null", "train.optimizer_steps=2", "environment.heldout_items=50")


def test_a_night_away_is_evaluated_gated_and_registered(new_clawpipe, settings, service):
    clawpipe = new_clawpipe("away")
    refused = clawpipe("plan", *clawpipe.options(*settings))  # the tiny night's alpha is another
    assert refused.code == 2
    assert refused.json["what"] == "tinker cannot train as the settings ask: it scales adapters by 32 / rank"
    own = (*settings, "train.lora.alpha=32")
    status = clawpipe.night(*own)
    steps = {entry["name"]: entry for entry in status["steps"]}
    assert [len(steps[f"round-{number}/train"]["details"]["updates"]) for number in (1, 2)] == [2, 2]
    assert service.steps == 4
    assert service.losses["ppo", False] == 4
    assert steps["check_model"]["details"]["trainer"]["largest"] < 1e-3
    assert status["verdict"] in ("PROMOTE", "HOLD", "REJECT")
    ref = steps["round-2/train"]["artifacts"]["output"]
    trained = load_file(Store(clawpipe.home.store).root / "adapter" / ref["digest"] / "adapter_model.safetensors")
    assert any(tensor.any() for name, tensor in trained.items() if "lora_B" in name)
    again = clawpipe.night(*own)
    assert [entry["state"] for entry in again["steps"] if entry["name"].endswith("train")] == ["cached", "cached"]
    assert service.steps == 4
    texts = [path for path in clawpipe.home.root.rglob("*") if path.is_file()]
    assert not [path for path in texts if KEY.encode() in Path(path).read_bytes()]
