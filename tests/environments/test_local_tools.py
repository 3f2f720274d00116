"""Tools that are functions of a file beside the JSON file that describes them."""

from __future__ import annotations

import json
import os

import pytest

from clawpipe.core.config.environment import EnvironmentSpec
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.play.environments.discovery import load_environment
from clawpipe.play.environments.local_tools import FunctionServer, files_of_tools, is_tool_file
from clawpipe.play.environments.play import Play
from tasks.keys import _files_of

FUNCTIONS = """
import os, sys, time
total = 0

def add(a, b=0):
    print("adding")
    return a + b

async def keep(number):
    global total
    total += number
    return {"total": total, "by": os.getpid()}

def fail(): raise LookupError("no such thing")
def sleep(): time.sleep(600)
def leave(): sys.exit(3)
def die(): os._exit(3)
def say(letters): return "x" * letters
def half(): return "a\\ud83d"
"""
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
SUM = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a"]}
LETTERS = {"type": "object", "properties": {"letters": {"type": "integer"}}}
TOOLS = [
    {"name": "add", "description": "Add.", "parameters": SUM, "path": "functions.py:add"},
    {"type": "function", "function": {"name": "keep", "description": "Keep.", "parameters": NUMBER}, "path": "functions.py:keep"},
    {"name": "say", "parameters": LETTERS, "function": "functions.py:say"},
    *(
        {"name": name, "description": "", "function_path": f"functions.py:{name}"}
        for name in ("fail", "sleep", "leave", "die", "half")
    ),
]


@pytest.fixture
def file(tmp_path):
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    place = tmp_path / "tools.json"
    place.write_text(json.dumps(TOOLS))
    return place


@pytest.fixture
def server(file):
    running = FunctionServer(file, 10.0, 80)
    yield running
    running.close()


def test_functions_run_in_a_process_that_keeps_their_state(server):
    assert [tool.name for tool in server.tools] == ["add", "keep", "say", "fail", "sleep", "leave", "die", "half"]
    assert server.call("add", {"a": 2, "b": 3}) == "5"
    first, second = (server.call("keep", {"number": 4}) for _ in range(2))
    assert first.startswith('{"total": 4')
    assert second.startswith('{"total": 8')
    assert str(os.getpid()) not in first


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("fail", {}, "error: LookupError: no such thing (functions.py, line 14)"),
        ("add", {"c": 1}, "error: TypeError: add() got an unexpected keyword argument 'c'"),
        ("leave", {}, "error: SystemExit: 3"),
        ("say", {"letters": 90}, "x" * 80 + "\n[10 more characters]"),
    ],
)
def test_what_goes_wrong_in_a_call_is_its_result(server, name, arguments, text):
    assert server.call(name, arguments).startswith(text)
    assert not server.has_ended
    assert server.call("add", {"a": 1}) == "1"


@pytest.mark.parametrize(("name", "text"), [("sleep", "error: it took more than 0.2 s"), ("die", "error: its process has ended")])
def test_a_call_that_hangs_or_ends_the_process_ends_it(file, name, text):
    running = FunctionServer(file, 0.2, 20)
    try:
        assert running.call(name, {}) == text
        assert running.has_ended
    finally:
        running.close()


def test_an_episode_has_functions_of_its_own(file, tmp_path):
    prompts = [{"prompt": f"Keep {n}.", "answer": {"name": "add", "arguments": {"a": n}, "result": str(n)}} for n in range(12)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    options = {"file": str(tmp_path / "prompts.jsonl"), "server": str(file), "check": "state", "share": 0.5, "timeout_s": 5.0}
    environment = load_environment("tools", options)
    for item in environment.items("train", 2, 0):
        play = Play(environment, item, 0)
        call = Message(
            "assistant", "", (ToolCall("1", "keep", '{"number": 7}'), ToolCall("2", "die", "{}"), ToolCall("3", "half", "{}"))
        )
        answers = play.answer([*item.messages, call]).messages
        assert answers[0].content.startswith('{"total": 7')
        assert answers[1].content == "error: its process has ended"
        assert answers[2].content == "a?"  # half a surrogate pair could not be stored
        play.end("done")
        assert environment.verify(item, item.messages, play.ending.verdict).success


@pytest.mark.parametrize(
    ("tools", "what"),
    [
        ([{"name": "add"}], "the tool 'add' has no function"),
        ([{"name": "add", "path": "add"}], "the tool 'add' has no function"),
        ([{"name": "add", "path": "functions.py:sub"}], "no 'sub' in it"),
        ([{"name": "add", "path": "broken.py:add"}], "it does not import"),
        ([{"name": "add", "path": "nowhere.py:add"}], "no such file"),
        ([{"name": "a b", "path": "functions.py:add"}], "no name of a tool"),
        ({}, "no list"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(file, tools, what):
    (file.parent / "broken.py").write_text("def add(:\n")
    file.write_text(json.dumps(tools))
    with pytest.raises((ConfigError, NotFoundError)) as caught:
        FunctionServer(file, 1.0, 20)
    assert what in caught.value.what


def test_the_functions_are_part_of_a_steps_key(file):
    spec = EnvironmentSpec(name="tools", options={"file": "x.jsonl", "server": str(file)})
    before = set(_files_of(spec))
    (file.parent / "functions.py").write_text(FUNCTIONS.replace("a + b", "a - b"))
    assert len(set(_files_of(spec)) - before) == 1
    assert files_of_tools(file.parent / "functions.py") == []


@pytest.mark.parametrize(
    ("server", "is_file"),
    [
        ("tools.json", True),
        ("{folder}/my tools.json", True),
        ("python server.py --config settings.json", False),
        ("https://example.com/tools.json", False),
        ("python server.py", False),
    ],
)
def test_a_command_that_ends_with_a_file_is_a_command(tmp_path, server, is_file):
    (tmp_path / "my tools.json").touch()
    assert is_tool_file(server.format(folder=tmp_path)) == is_file
