"""From a file to a registered model by one command, and to a config by another."""

from __future__ import annotations

import json

import pytest
import yaml

pytestmark = pytest.mark.slow

FEW = ("train.max_steps=1", "train.optimizer_steps=2", "runtime.workers=1", "runtime.train_threads=1")


def test_one_command_from_pairs_to_a_model(new_clawpipe, tmp_path):
    clawpipe = new_clawpipe("start")
    pairs = [{"prompt": f"{number} + 1 = ?", "chosen": f"{number + 1}", "rejected": "no idea"} for number in range(40)]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    overrides = [word for setting in FEW for word in ("-o", setting)]
    words = ["train", str(file), "--model", "random", *overrides, "--json"]
    done = clawpipe(*words, "--output", str(tmp_path / "model"))
    assert done.code == 0, done.stderr
    steps = {step["name"]: step for step in done.json["steps"]}
    held = steps["hold_out"]["filtered"]["held out"]
    assert steps["hold_out"]["rows_in"] == 40
    assert steps["round-1/train"]["rows_in"] == 40 - held
    assert done.json["measure"] == "preference accuracy"
    assert (tmp_path / "model" / "model.safetensors").is_file()
    again = clawpipe(*words)
    states = {step["name"]: step["state"] for step in again.json["steps"]}
    assert (states["round-1/train"], states["evaluate/candidate"], states["register"]) == ("cached",) * 3
    assert again.json["night"] == done.json["night"]
    refused = clawpipe(*words, "--output", str(tmp_path / "model"))
    assert refused.code == 2


def test_a_config_is_written_once_and_says_why(new_clawpipe, tmp_path):
    clawpipe = new_clawpipe("init")
    said = [{"role": "user", "content": "How many?"}, {"role": "assistant", "content": "Seven."}]
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": said, "session_id": "a"}) + "\n")
    config = tmp_path / "night.yaml"
    words = ["init", str(tmp_path / "chats.jsonl"), "--output", str(config), "--model", "random", "--json"]
    done = clawpipe(*words)
    assert done.code == 0, done.stderr
    assert yaml.safe_load(config.read_text()) == done.json["settings"]
    assert "# sft: text without the sampled tokens" in config.read_text()
    assert [step.split()[1] for step in done.json["next"]] == ["ingest", "plan", "run"]
    assert clawpipe(*words).code == 2
