"""The table of clients is that of its results; the script's parts; and the quick clients themselves."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "benchmarks/clients"
ENGINE = runpy.run_path(str(PLACE / "engine.py"))
CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Bergen"]}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": CITY}} for name in ("weather", "final_answer")]


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(PLACE))
    try:
        return runpy.run_path(str(PLACE / "run.py"))
    finally:
        sys.path.remove(str(PLACE))


def test_the_page_shows_what_was_measured(script):
    results, page = json.loads((ROOT / "benchmarks/clients.json").read_text()), (ROOT / "docs/clients.md").read_text()
    assert script["with_table"](page, results) == page
    assert script["failures"](results["clients"]) == []


def test_a_failure_is_said_and_ends_with_an_error(script):
    good = {"chat": True, "captured": {"turns": 1, "with_tokens": 1, "held_to_a_grammar": 0, "apis": {"chat": 1}}}
    results = {"a client": {"version": "1", "serve": {"chat": "TypeError: x", "tools": True}, "gateway": good}}
    assert script["failures"](results) == ["a client, serve, chat: TypeError: x"]
    line = "| a client | 1 | not with serve | - | serve only | - | - | 1 chat; 1 with tokens, 0 as side turns |"
    assert script["table"]({"clients": results}).splitlines()[-1] == line


def test_every_client_has_its_program(script):
    assert {client.script for client in script["CLIENTS"]} | {"tried.py"} == {
        path.name for path in (PLACE / "tries").iterdir() if path.suffix in (".py", ".mjs")
    }


@pytest.mark.parametrize(
    ("asked", "choice", "called"),
    [
        ('call weather {"city": "Oslo"}', "auto", ("weather", '{"city": "Oslo"}')),
        ("Say hello.", "auto", None),
        ("Say hello.", "required", ("weather", '{"city": "Oslo"}')),
        ('call other {"city": "Oslo"}', "auto", None),
        ('call weather {"city": "Oslo"}', "none", None),
    ],
)
def test_the_scripted_engine_calls_what_it_is_told(asked, choice, called):
    body = {"messages": [{"role": "user", "content": asked}], "tools": TOOLS, "tool_choice": choice}
    made = ENGINE["call_of"](body)
    assert (made and (made["name"], made["arguments"])) == called


def test_the_scripted_engine_ends_by_the_final_call():
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": ""}, {"role": "tool", "content": "dry"}]
    assert ENGINE["call_of"]({"messages": said, "tools": TOOLS, "tool_choice": "required"})["name"] == "final_answer"


@pytest.mark.parametrize(
    "schema",
    [
        CITY,
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"], "$defs": {"n": {"type": "integer"}}},
        {"anyOf": [{"type": "null"}, {"type": "string"}]},
        {"type": "array", "items": {"type": "string"}},
        {"const": 3},
    ],
)
def test_the_least_value_fits_its_schema(schema):
    jsonschema.validate(ENGINE["least"](schema, schema), schema)


@pytest.mark.foreign
def test_the_quick_clients_work(tmp_path: Path):
    """In the newest versions that resolve: what they come to need is known here first."""
    words = ["--quick", "--envs", str(tmp_path / "envs"), "--out", str(tmp_path / "clients.json")]
    env = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, str(PLACE / "run.py"), *words], env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads((tmp_path / "clients.json").read_text())["clients"]
    assert len(found) >= 8
    assert all(re.match(r"\d+\.", one["version"]) and one["gateway"]["captured"]["with_tokens"] for one in found.values())
