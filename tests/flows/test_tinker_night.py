"""A whole night whose policy is trained at a service: a fake of Tinker's API that really trains, see tests/fake_tinker.py."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_ref, read_dataset
from clawpipe.model.policy.base import copy_companions, resolve_base

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


@pytest.fixture
def blind(service: FakeTinker, settings: tuple[str, ...], tmp_path: Path) -> tuple[str, ...]:
    """Settings of a night that knows the base by its config and tokenizer alone."""
    copy_companions(resolve_base("random").path, tmp_path)
    engine = f"rollouts.engine={{name: tinker, url: '{service.url}', model: tiny}}"
    few = (
        "rollouts.items=8",
        "rollouts.group_size=4",
        "environment.heldout_items=24",
        "environment.train_items=40",
        "candidate=last",
    )
    return (*settings, "train.lora.alpha=32", engine, "model.elsewhere=tiny", f"model.base={tmp_path}", *few)


@pytest.mark.long
def test_a_night_without_weights_here_samples_what_it_trained(new_clawpipe, blind, service):
    clawpipe, taken = new_clawpipe("blind"), service.steps
    status = clawpipe.night(*blind)
    steps = {entry["name"]: entry for entry in status["steps"]}
    checked = steps["check_model"]["details"]
    assert (checked["engine"]["largest"] < 1e-3, checked["trainer"]["largest"] < 1e-3) == (True, True)
    trained = [steps[f"round-{number}/train"]["artifacts"]["output"] for number in (1, 2)]
    made, store = steps["round-2/generate_rollouts"]["artifacts"]["output"], Store(clawpipe.home.store)
    rows = read_dataset(store, dataset_ref(store, made["name"], made["digest"])).to_pylist()
    assert {row["policy_version"] for row in rows} == {trained[0]["policy_version"]}
    assert {json.loads(row["extra"])["engine"]["name"] for row in rows} == {"tinker"}
    paths = {sampler.path for sampler in service.samplers.values()}
    assert {None} | {one["remote"] for one in trained} <= paths
    assert service.steps - taken == 4
    assert status["verdict"] in ("PROMOTE", "HOLD", "REJECT")
    asked = service.sampled
    assert clawpipe.night(*blind)["policy_version"] == status["policy_version"]
    assert (service.sampled, service.steps - taken) == (asked, 4)


@pytest.mark.long
def test_each_kill_while_sampling_pays_for_one_batch(new_clawpipe, blind, service):
    def counts() -> tuple[int, int]:
        return service.sampled, service.sessions

    first, straight = counts(), new_clawpipe("blind-whole").night(*blind)
    second, clawpipe = counts(), new_clawpipe("blind-killed")
    # Each worker dies in the middle of a batch, and its successor goes on; then the night does, with a shard that is not in place.
    killed = clawpipe.run(*blind, kill_at="tinker.answered/sample#20,rollouts.before_rename#1")
    assert killed.code == -signal.SIGKILL
    clawpipe.await_quiet()
    assert clawpipe.night(*blind)["policy_version"] == straight["policy_version"]
    (asked, sessions), (paid, opened) = (
        [b - a for a, b in zip(*pair, strict=True)] for pair in ((first, second), (second, counts()))
    )
    assert opened > sessions
    assert paid <= asked + (opened - sessions) * (32 + 11)  # the rows of a batch, and the check of the engine by a new process
