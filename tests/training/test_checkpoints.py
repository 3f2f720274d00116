"""Checkpoints: only whole ones of the same run are resumed from."""

import json
import os
import subprocess
import sys

import pytest
import torch

from clawpipe.learn.training.checkpoint.files import Checkpoints
from clawpipe.learn.training.checkpoint.state import load_optimizer, load_random, load_weights, save_state

IDENTITY = {"config": "c", "data": "d"}


def write(directory):
    (directory / "weights").write_bytes(b"w" * 100)
    (directory / "state.json").write_text("{}")


@pytest.fixture
def store(tmp_path):
    return Checkpoints(tmp_path / "checkpoints", IDENTITY)


def names(store):
    return sorted(path.name for path in store.root.iterdir())


def test_the_newest_two_are_kept(store):
    for step in (9, 10, 11):
        store.save(step, write)
    assert names(store) == ["checkpoint-10", "checkpoint-11"]
    assert store.latest_valid() == store.root / "checkpoint-11"


def test_there_may_be_none(store):
    assert store.latest_valid() is None


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "manifest", "no manifest", "other files"])
def test_a_damaged_one_is_set_aside_and_the_one_before_it_taken(store, damage):
    store.save(1, write)
    store.save(2, write)
    newest = store.root / "checkpoint-2"
    if damage == "flip":
        (newest / "weights").write_bytes(b"w" * 99 + b"x")
    if damage == "truncate":
        os.truncate(newest / "weights", 50)
    if damage == "remove":
        (newest / "weights").unlink()
    if damage == "manifest":
        os.truncate(newest / "MANIFEST.json", 20)
    if damage == "no manifest":
        (newest / "MANIFEST.json").unlink()
    if damage == "other files":
        (newest / "MANIFEST.json").write_text(json.dumps([1]))
    assert store.latest_valid() == store.root / "checkpoint-1"
    assert names(store) == ["checkpoint-1", "checkpoint-2.corrupt"]


@pytest.mark.parametrize("changed", ["config", "data"])
def test_one_of_other_settings_or_data_is_removed(store, changed):
    Checkpoints(store.root, IDENTITY | {changed: "other"}).save(5, write)
    assert store.latest_valid() is None
    assert names(store) == []


@pytest.mark.parametrize("moment", ["checkpoint.before_rename", "checkpoint.after_fill"])
def test_a_kill_while_saving_leaves_the_one_before(store, moment):
    store.save(1, write)
    code = (
        "import pathlib\n"
        "from clawpipe import faults\n"
        "from clawpipe.learn.training.checkpoint.files import Checkpoints\n"
        "def fill(directory):\n"
        "    (directory / 'weights').write_bytes(b'half')\n"
        "    faults.kill_point('checkpoint.after_fill')\n"
        f"Checkpoints(pathlib.Path({str(store.root)!r}), {IDENTITY!r}).save(2, fill)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], env=os.environ | {"CLAWPIPE_KILL_AT": moment}, check=False)
    assert ended.returncode == -9
    assert store.latest_valid() == store.root / "checkpoint-1"
    store.save(2, write)
    assert names(store) == ["checkpoint-1", "checkpoint-2"]


def test_state_comes_back_bit_by_bit(tmp_path):
    def parts():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        model[0].bias.requires_grad_(False)
        optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.1)
        return model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

    def step(model, optimizer, scheduler):
        model(torch.randn(5, 3)).square().sum().backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()

    model, optimizer, scheduler = parts()
    step(model, optimizer, scheduler)
    save_state(tmp_path, model, optimizer, scheduler)
    step(model, optimizer, scheduler)
    torch.manual_seed(99)
    again, its_optimizer, its_scheduler = parts()
    load_weights(tmp_path, again)
    load_optimizer(tmp_path, again, its_optimizer, its_scheduler)
    load_random(tmp_path)
    step(again, its_optimizer, its_scheduler)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=True))
    assert its_scheduler.get_last_lr() == scheduler.get_last_lr()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors", ".safetensors", ".safetensors"]
