"""`clawpipe batch`: what lies in the file of answers already."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from clawpipe.cli import batch
from clawpipe.cli.main import _outcome

PROMPT = '{"prompt": "1 + 1?", "answer": 2}\n'


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text(PROMPT)
    return path


def asked(prompts: Path, output: Path) -> int:
    nobody = "http://127.0.0.1:9/v1"
    return _outcome(["batch", str(prompts), "--output", str(output), "--endpoint", nobody, "--model", "mine"])


@pytest.mark.parametrize("text", ["{}\n", "a note\nwithout an end", '{"prompt": "x"}', "[1]\n"])
def test_a_file_of_something_else_is_left_as_it_is(prompts, tmp_path, text, capsys):
    """Its last line was cut off where no line end followed it."""
    output = tmp_path / "other.jsonl"
    output.write_text(text)
    assert asked(prompts, output) == 2
    assert output.read_text() == text
    assert "something else than answers" in capsys.readouterr().err


def test_answers_of_another_model_are_not_taken_for_its_own(prompts, tmp_path, capsys):
    output = tmp_path / "answers.jsonl"
    output.write_text(json.dumps({"session_id": "x/0", "model": "other", "messages": []}) + "\n")
    assert asked(prompts, output) == 2
    assert "it holds answers of other" in capsys.readouterr().err


@pytest.mark.parametrize(("endpoint", "sent"), [(batch._OWN, "own"), ("https://api.example.com/v1", "theirs")])
def test_ones_own_server_is_asked_with_its_own_key(monkeypatch, endpoint: str, sent: str):
    monkeypatch.setenv("OPENAI_API_KEY", "theirs")
    monkeypatch.setenv("CLAWPIPE_API_KEY", "own")
    batch._take_own_key(endpoint)
    assert os.environ["OPENAI_API_KEY"] == sent


def test_where_nothing_is_left_to_ask_it_says_so(prompts, tmp_path, capsys):
    from clawpipe.play.environments.prompts import PromptsEnvironment

    [item] = PromptsEnvironment(str(prompts), "numeric").every_item()
    output = tmp_path / "answers.jsonl"
    output.write_text(json.dumps({"session_id": f"{item.item_id}/0", "model": "mine", "messages": []}) + '\n{"sess')
    with prompts.open("a") as file:
        file.write(f"{PROMPT}{{}}\n")
    assert asked(prompts, output) == 0
    said = capsys.readouterr()
    assert "nothing was asked" in said.out
    assert "2 lines are no prompts and were left out (1 x an earlier line asks the same" in said.err
    assert output.read_text().count("\n") == 1
