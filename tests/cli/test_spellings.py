"""One meaning a flag, over the whole command line; and what was spelt otherwise before goes on, with a line about it."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner

from clawpipe.cli.main import app, run
from clawpipe.cli.output import without_markup
from clawpipe.cli.spellings import FORMER
from clawpipe.core.store.home import Home
from clawpipe.record.registry.names import version_name, version_uri

# Short flags that exist, each of one long flag; none may be given to another.
SHORT = {"-c": "--config", "-d": "--dir", "-e": "--environment", "-f": "--follow", "-l": "--limit", "-m": "--model"}
SHORT |= {"-o": "--override", "-r": "--reason", "-s": "--space", "-y": "--yes"}
READ = {"--in", "--input", "--inputs", "--data", "--file", "--files", "--path", "--paths"}
WRITTEN = {"--out", "--out-dir", "--output-dir", "--output-file", "--dest", "--target"}
WRITERS = {"atropos", "batch", "env plant", "env test", "export", "ingest", "init", "models export", "process", "train"}
LISTED_BELOW = {("mcp", "--data")}  # what an agent may read later; the command itself reads nothing of it


def commands(command: Any = None, *words: str) -> dict[str, Any]:
    """Every command by its words."""
    command = command or typer.main.get_command(app)
    below = getattr(command, "commands", None)
    if below is None:
        return {" ".join(words): command}
    return {path: found for name, child in below.items() for path, found in commands(child, *words, name).items()}


EVERY = commands()
OPTIONS = [(path, option) for path, command in EVERY.items() for option in command.params if option.param_type_name == "option"]


def parsed(words: str) -> dict[str, Any]:
    """What a command's function would get."""
    parts = words.split()
    size = 2 if " ".join(parts[:2]) in EVERY else 1
    return EVERY[" ".join(parts[:size])].make_context(parts[0], parts[size:]).params


def test_a_short_flag_is_one_long_flag_everywhere():
    long = defaultdict(set)
    for _, option in OPTIONS:
        for name in option.opts:
            if not name.startswith("--"):
                long[name] |= {one for one in option.opts if one.startswith("--")}
    assert {name: [SHORT[name]] for name in long} == {name: sorted(found) for name, found in long.items()}


def test_a_flag_takes_a_value_everywhere_or_nowhere():
    kinds = defaultdict(set)
    for _, option in OPTIONS:
        for name in option.opts:
            kinds[name].add(option.is_flag)
    assert [name for name, found in kinds.items() if len(found) > 1] == []


def test_what_is_read_has_no_flag_and_what_is_written_has_one():
    found = {(path, name) for path, option in OPTIONS for name in option.opts}
    assert {one for one in found if one[1] in READ} == LISTED_BELOW
    assert [one for one in found if one[1] in WRITTEN] == []
    assert {path for path, name in found if name == "--output"} == WRITERS


def test_no_text_of_the_help_names_a_version_as_mlflow_does():
    told = [parameter.help or "" for command in EVERY.values() for parameter in command.params]
    assert [text for text in [*told, *(command.help for command in EVERY.values())] if "models:/" in text] == []


@pytest.mark.parametrize("command", FORMER)
def test_an_old_spelling_is_one_of_a_command_and_leads_to_a_flag(command: str):
    today = {name for option in EVERY[command].params for name in (*option.opts, *option.secondary_opts)}
    assert {new for new in FORMER[command].values() if new} <= today
    assert not today & {old for old in FORMER[command] if isinstance(old, str)}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("init a.jsonl -o n.yaml", "init a.jsonl --output n.yaml", "write --output in place of -o"),
        ("init -on.yaml a.jsonl", "init a.jsonl --output n.yaml", "write --output in place of -o"),
        ("train --data a -d b -m m", "train a b -m m", "write a by itself, without --data|write b by itself, without -d"),
        ("train --data=a -o seed=1", "train a -o seed=1", "write a by itself, without --data"),
        ("batch -i a -o b", "batch a --output b", "write a by itself, without -i|write --output in place of -o"),
        (
            "batch a --output b --no-save-tool-calls",
            "batch a --output b --text-only",
            "--text-only in place of --no-save-tool-calls",
        ),
        ("process -i a -o b -f chat", "process a --output b --format chat", "a by itself|--output|--format"),
        ("export x --out=y", "export x --output y", "write --output in place of --out"),
        ("models export a@1 out", "models export a@1 --output out", "write --output out in place of out"),
        ("models export -f merged a@1 out", "models export a@1 --output out --format merged", "--format|--output out"),
        ("env plant /tmp/x --seed 2", "env plant --output /tmp/x --seed 2", "write --output /tmp/x in place of /tmp/x"),
        ("env test shop --output-dir x", "env test shop --output x", "--output in place of --output-dir"),
        ("gateway --upstream u --follow a@champion", "gateway a@champion --upstream u", "write a@champion by itself"),
        ("ingest a --night n.yaml", "ingest a --output n.yaml", "write --output in place of --night"),
        ("connect json --mcp", "connect json --training-tools", "--training-tools in place of --mcp"),
        ("plan -c a --check", "plan -c a --check-model", "--check-model in place of --check"),
        ("status -n x", "status --night x", "--night in place of -n"),
        ("inspect a -n 4", "inspect a -l 4", "--limit in place of -n"),
        ("judge try a -s rules -n 4", "judge try a --scorer rules -l 4", "--scorer in place of -s|--limit in place of -n"),
        ("sweep -c a -s b -n 4", "sweep -c a -s b --trials 4", "--trials in place of -n"),
        (
            "atropos u -o x -n 3 --max-tokens 9",
            "atropos u --output x --batches 3 --max-length 9",
            "--output|--batches|--max-length",
        ),
    ],
)
def test_an_old_spelling_works_and_names_the_new_one(old: str, new: str, told: str, capsys: pytest.CaptureFixture[str]):
    expected = parsed(new)
    assert capsys.readouterr() == ("", "")  # today's says nothing
    assert parsed(old) == expected
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(told.split("|"))
    assert all(part in line and line.startswith("clawpipe: ") for line, part in zip(lines, told.split("|"), strict=True))


def test_a_value_that_looks_like_an_old_flag_is_a_value(capsys: pytest.CaptureFixture[str]):
    assert parsed("train a --method -d")["method"] == "-d"
    assert parsed("train -- --data")["paths"] == ["--data"]
    assert capsys.readouterr().err == ""


def test_an_old_spelling_leaves_one_object_on_stdout(home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "a.jsonl").write_text('{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n')
    with pytest.raises(SystemExit) as end:
        run(["process", "-i", str(tmp_path / "a.jsonl"), "-o", str(tmp_path / "b.jsonl"), "--json"])
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["written"] == 1


@pytest.mark.parametrize(
    ("name", "uri"),
    [
        ("agent@3", "models:/agent/3"),
        ("agent@champion", "models:/agent@champion"),
        ("models:/agent@3", "models:/agent/3"),
        ("models:/agent/3", "models:/agent/3"),
        ("models:/agent/latest", "models:/agent/latest"),
        ("org/name", "org/name"),
        ("./models/a@3", "./models/a@3"),
        ("random", "random"),
    ],
)
def test_a_name_of_a_version_is_found_in_mlflow(name: str, uri: str):
    assert version_uri(name) == uri


@pytest.mark.parametrize("name", ["agent@3", "agent/3", "models:/agent/3", "models:/agent@3"])
def test_a_version_has_one_name_for_people(name: str):
    assert version_name(name) == "agent@3"
    assert version_name("models:/agent@champion") == "agent@champion"
    assert version_name("org/name") == "org/name"


def shown(text: str) -> str:
    """A text as words, without the frames and line breaks of the terminal."""
    return " ".join(text.replace("\\[", "[").translate(str.maketrans("", "", "\u2502\u256d\u256e\u2570\u256f\u2500")).split())


@pytest.mark.parametrize("path", EVERY)
def test_the_help_shows_every_text_as_it_is_written(path: str, monkeypatch: pytest.MonkeyPatch):
    """`pip install 'clawpipe[sweep]'` lost its extra, which rich took for markup."""
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 1000)  # no text breaks, whatever width the process began with
    told = shown(CliRunner().invoke(app, [*path.split(), "--help"]).output)
    command = EVERY[path]
    assert shown(command.callback.__doc__) in told
    for parameter in command.params:
        assert parameter.hidden or shown(parameter.help) in told


@pytest.mark.parametrize("text", ["clawpipe[sweep]", "[a]", "NAME[@URL]", "[/b] [#x]", "x[1]", "[ ]", "\\[done]"])
def test_no_bracket_of_a_help_text_is_markup(text: str):
    assert Text.from_markup(without_markup(text)).plain == text.replace("\\", "")


def test_help_cuts_no_name_at_80_columns(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 80)
    for words in EVERY:
        told = CliRunner().invoke(app, [*words.split(), "--help"]).output
        assert "…" not in told, words
        assert max(map(len, told.splitlines())) <= 80, words


def test_a_run_without_a_config_says_what_to_do(home: Home, capsys: pytest.CaptureFixture[str]):
    """It ran the demo, for an hour."""
    with pytest.raises(SystemExit) as end:
        run(["run", "-o", "seed=1"])
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert all(word in told for word in ("clawpipe run --config night.yaml", "clawpipe init", "clawpipe demo"))
    assert not home.root.exists()


def test_a_trace_of_nothing_asks_for_one_in_one_line(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        run(["trace"])
    assert end.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert all(word in line for word in ("NAME@3", "--session ID", "--user ID"))


def test_a_wrong_choice_is_told_without_pydantics_words(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        run(["connect", "cline"])
    told = capsys.readouterr().err
    assert "Value error" not in told
    assert "'openclaw'" in told


@pytest.mark.parametrize(("words", "makes"), [("sessions list", "clawpipe gateway"), ("keys list", "clawpipe keys make")])
def test_an_empty_list_says_what_fills_it(words: str, makes: str, home: Home, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        run(words.split())
    assert end.value.code == 0
    assert makes in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", ["rollback -m agent@3", "models list -m models:/agent/3", "runs list -m agent@3", "datasets waiting -m agent/3"]
)
def test_a_version_in_place_of_a_model_is_told(words: str, home: Home, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        run(words.split())
    assert end.value.code == 2
    assert "write --model agent" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_config_without_its_flag_is_told(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        run([command, "night.yaml"])
    assert "--config night.yaml" in capsys.readouterr().err
