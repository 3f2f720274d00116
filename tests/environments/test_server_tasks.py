"""Tasks that are made of the tools of functions which keep notes."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from clawpipe.cli.main import app
from clawpipe.core.config import load_config
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.errors import ConfigError, DataError
from clawpipe.play.environments.discovery import load_environment
from clawpipe.play.environments.play import Play
from clawpipe.play.environments.server_tasks import made_tasks

FUNCTIONS = """
import uuid
notes = {}

def write(title, text):
    notes[title] = text
    return "written"

def delete(title):
    del notes[title]
    return "deleted"

def tag(title):
    notes[title] = str(uuid.uuid4())
    return "tagged"

def everything(): return notes
def add(a, b): return a + b
def clock(): return str(uuid.uuid4())
def count(calls=[]): return calls.append(0) or len(calls)
"""
TEXT, NUMBER = {"type": "string"}, {"type": "integer", "minimum": 10, "maximum": 12}


def tool(name: str, description: str, **arguments: object) -> dict[str, object]:
    parameters = {"type": "object", "properties": arguments, "required": list(arguments)}
    return {"name": name, "description": description, "parameters": parameters, "path": f"functions.py:{name}"}


WRITE = tool("write", "Write a note. It replaces one of that title.", title=TEXT, text={"enum": ["a", "b"]})
DELETE, TAG, READ = (
    tool("delete", "Delete a note.", title=TEXT),
    tool("tag", "Tag it.", title=TEXT),
    tool("everything", "List notes."),
)
ADD, CLOCK = tool("add", "Add two numbers.", a=NUMBER, b=NUMBER), tool("clock", "Tell the time.")
COUNT = tool("count", "Count the calls.")


@pytest.fixture
def server_of(tmp_path):
    """server_of(tools): the file of some tools."""
    (tmp_path / "functions.py").write_text(FUNCTIONS)

    def write(*tools: dict[str, object]) -> str:
        (tmp_path / "tools.json").write_text(json.dumps(tools))
        return str(tmp_path / "tools.json")

    return write


def test_a_task_says_what_to_do_and_holds_the_state_afterwards(server_of):
    tasks = made_tasks(server_of(WRITE, READ), 6)
    assert tasks == made_tasks(server_of(WRITE, READ), 6)
    assert len({task["prompt"] for task in tasks}) == 6
    for task in tasks:
        [asked] = task["answer"]
        notes = json.loads(asked["result"])
        assert (asked["name"], task["check"], task["slice"]) == ("everything", "state", "write")
        assert task["prompt"].startswith("Write a note, where title is ")
        assert all(json.dumps(title) in task["prompt"] and text in ("a", "b") for title, text in notes.items())


def test_calls_that_fail_change_nothing_or_differ_make_no_task(server_of):
    """A note has to be there to be deleted; a tag is another one each time."""
    tasks = made_tasks(server_of(WRITE, DELETE, TAG, READ), 12)
    assert "tag" not in {task["slice"] for task in tasks}
    assert all(json.loads(task["answer"][0]["result"]) for task in tasks)
    with pytest.raises(DataError, match="no calls of its tools"):
        made_tasks(server_of(TAG, READ), 2)


def test_tools_that_only_compute_are_asked_for_their_result(server_of):
    for task in made_tasks(server_of(ADD), 3):
        numbers = [int(word.strip(".,")) for word in task["prompt"].split() if word.strip(".,").isdigit()]
        assert (int(task["answer"]), task["check"]) == (sum(numbers), "contains")
        assert all(10 <= number <= 12 for number in numbers)


@pytest.mark.parametrize("strange", [CLOCK, COUNT])
def test_what_differs_each_time_is_no_state(server_of, strange):
    """And it keeps no task from being made of the others."""
    for task in made_tasks(server_of(strange, WRITE, READ), 3):
        assert ([one["name"] for one in task["answer"]], task["check"]) == (["everything"], "state")
    assert {task["check"] for task in made_tasks(server_of(ADD, strange), 3)} == {"contains"}


def test_a_state_that_outlives_its_server_makes_no_tasks(server_of, tmp_path):
    """Each answer would hold what earlier tasks have written."""
    kept = f"import json, pathlib\nfile = pathlib.Path({str(tmp_path / 'kept.json')!r})\n"
    kept += "def everything(): return json.loads(file.read_text()) if file.exists() else {}\n"
    kept += "def write(title, text): return str(file.write_text(json.dumps({**everything(), title: text})))\n"
    server = server_of(WRITE, READ)
    (tmp_path / "functions.py").write_text(kept)
    with pytest.raises(DataError, match="as everything says: its state lies outside of it"):
        made_tasks(server, 4)


def test_a_running_server_is_left_alone():
    with pytest.raises(ConfigError, match="would change a running server"):
        made_tasks("http://127.0.0.1:1/mcp", 2)


def test_init_writes_config_and_tasks(server_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server_of(WRITE, READ)
    done = CliRunner().invoke(app, ["init", "--mcp", "tools.json", "--tasks", "8", "--model", "random", "--output", "mine.yaml"])
    assert done.exit_code == 0, done.output
    options = load_config(tmp_path / "mine.yaml", []).environment.options
    environment = load_environment("tools", options)
    [item] = environment.items("train", 1, 0)
    wanted = json.loads(json.loads(item.truth)["answer"][0]["result"])
    assert _played(environment, item, wanted).success
    assert not _played(environment, item, {}).success


def _played(environment, item, notes):
    play = Play(environment, item, 0)
    calls = tuple(ToolCall(title, "write", json.dumps({"title": title, "text": text})) for title, text in notes.items())
    said = Message("assistant", "" if calls else "Done.", calls)
    play.answer([*item.messages, said])
    play.end("done")
    return environment.verify(item, [*item.messages, said], play.ending.verdict)


def test_init_without_anything_says_what_to_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="nothing to learn from"):
        CliRunner().invoke(app, ["init", "--model", "random"], catch_exceptions=False)
