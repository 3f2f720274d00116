"""`clawpipe process`: clean lines for another tool, and nothing stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from clawpipe.cli.main import _outcome, app
from clawpipe.data.ingest.monoclaw import rl_settings
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.start.proposing.propose import propose

KEY = "sk-proj-" + "a1B2c3D4" * 6


def row(question: str, *, completed: bool) -> dict[str, Any]:
    """A row of the batch runner."""
    said = [{"from": "human", "value": question}, {"from": "gpt", "value": f"{question}: the key is {KEY}"}]
    return {"prompt_index": 0, "conversations": said, "completed": completed, "partial": False, "tool_stats": {}, "api_calls": 1}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    rows = [row("a", completed=True), row("b", completed=False), row("c", completed=True)]
    path.write_text("".join(f"{json.dumps(one)}\n" for one in rows) + "no json\n")
    return path


def processed(file: Path, *words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    out = file.with_name("clean.jsonl")
    done = CliRunner().invoke(app, ["process", str(file), "--output", str(out), *words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout), [json.loads(line) for line in out.read_text().splitlines()]


def test_lines_are_clean_and_labelled(file, home):
    told, lines = processed(file)
    assert [(line["messages"][0]["content"], line["success"]) for line in lines] == [("a", True), ("b", False), ("c", True)]
    assert KEY not in json.dumps(lines)
    assert (told["lines"], told["written"], told["filtered"]) == (4, 3, {"not JSON": 1})
    assert not home.root.exists() or not (home.root / "store").exists()


def test_only_successes(file):
    told, lines = processed(file, "--filter-success-only", "--format", "sharegpt")
    assert [line["conversations"][0]["value"] for line in lines] == ["a", "c"]
    assert told["filtered"] == {"not JSON": 1, "no success": 1}


def test_a_label_outranks_what_the_batch_runner_believed(file):
    """A batch row that was completed was once a success, whatever its label said."""
    labels = file.with_name("labels.jsonl")
    labels.write_text('{"prompt": "a", "success": false}\n{"prompt": "b", "success": true}\n')
    _, lines = processed(file, "--labels", str(labels))
    assert [(line["messages"][0]["content"], line["success"]) for line in lines] == [("a", False), ("b", True), ("c", True)]


def test_what_it_writes_is_proposed_for_imitation_of_successes(file):
    processed(file)
    config = propose([str(file.with_name("clean.jsonl"))], "random", None, "a").config()
    assert (config.train.method, config.curation.imitate) == ("sft", "success")


def test_the_rl_block_is_read_and_the_rest_is_not(tmp_path, file):
    config = tmp_path / "config.yaml"
    config.write_text(
        "model: {custom: {endpoint: here}}\nrl:\n"
        "  training: {batch_size: 4, learning_rate: 5.0e-5, max_length: 2048, save_steps: 100}\n"
        "  wandb: {project: agent, entity: team}\n"
    )
    settings = propose([str(file)], "random", "sft", "a", monoclaw=config).config()
    assert (settings.train.batch_rows, settings.train.learning_rate, settings.train.checkpoint_steps) == (4, 5e-5, 100)
    assert (settings.curation.max_tokens, settings.tracking.wandb) == (2048, "team/agent")


def test_what_train_needs_to_write_is_looked_at_first(file, home, capsys):
    """A whole night ran before it failed with a traceback."""
    for words, why in (
        (["--output", str(file / "model")], "a file stands where a folder is needed"),
        (["--wandb-project", "my project", "-o", "train.metod=sft"], "no such setting"),
    ):
        assert _outcome(["train", str(file), "--model", "random", *words]) == 2
        assert why in capsys.readouterr().err


@pytest.mark.parametrize("text", ["rl: {training: {batch_size: 0}}", "rl: {training: {optimiser: adam}}", "rl: 3", "- a"])
def test_an_rl_block_that_says_something_else_is_refused_by_name(tmp_path, text):
    config = tmp_path / "config.yaml"
    config.write_text(text)
    with pytest.raises(ConfigError):
        rl_settings(config)


def test_a_config_without_the_block_sets_nothing(tmp_path):
    (tmp_path / "config.yaml").write_text("model: x\n")
    assert rl_settings(tmp_path / "config.yaml") == {}
    with pytest.raises(NotFoundError):
        rl_settings(tmp_path / "none.yaml")


def test_a_file_of_which_nothing_is_left_is_an_error(file, home, capsys):
    file.write_text("no json\n")
    assert _outcome(["process", str(file), "--output", str(file.with_name("clean.jsonl"))]) == 65
    assert "there is nothing to train on" in capsys.readouterr().out
