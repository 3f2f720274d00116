"""The server as clients reach it: over pipes and over HTTP, with whatever they send."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import anyio
import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from clawpipe.core.services.secret import home_secret
from clawpipe.core.store.home import Home
from clawpipe.start.mcp import home as home_tools
from clawpipe.start.mcp.desk import Desk
from clawpipe.start.mcp.protocol import call
from clawpipe.start.mcp.tools import tools_of
from tests.mcp.test_choosing import TINY

HERMES = {  # the ten tools as users of Hermes know them, with their arguments
    "rl_list_environments": set(),
    "rl_select_environment": {"name"},
    "rl_get_current_config": set(),
    "rl_edit_config": {"field", "value"},
    "rl_start_training": set(),
    "rl_check_status": {"run_id"},
    "rl_stop_training": {"run_id"},
    "rl_get_results": {"run_id"},
    "rl_list_runs": set(),
    "rl_test_inference": {"num_steps", "group_size", "models"},
}
COMMAND = ["-m", "clawpipe.cli.main", "mcp", "--config", str(TINY)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["name", "field", "value", "run_id", "file", "version", "session", "user", "num_steps"]) | st.text(
    max_size=6
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_a_client_on_pipes_finds_the_tools_and_their_arguments(home):
    async def listed() -> dict[str, set[str]]:
        server = StdioServerParameters(command=sys.executable, args=COMMAND, env=os.environ | {"CLAWPIPE_HOME": str(home.root)})
        async with Client(stdio_client(server)) as client:
            refused = await client.call_tool("rl_start_training", {})
            assert refused.is_error
            assert json.loads(refused.content[0].text)["error"] == "no environment is selected"
            return {tool.name: set(tool.input_schema["properties"]) for tool in (await client.list_tools()).tools}

    assert {name: arguments for name, arguments in anyio.run(listed).items() if name.startswith("rl_")} == HERMES


@pytest.mark.parametrize("words", [("--dir", "/nope"), ("--data", "/nope"), ("--config", "nope.yaml")])
def test_a_mistake_shows_before_a_client_waits(home, words):
    env = os.environ | {"CLAWPIPE_HOME": str(home.root)}
    done = subprocess.run([sys.executable, *COMMAND, *words], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nope" in done.stderr
    assert "Traceback" not in done.stderr


@contextmanager
def over_http(home: Home) -> Iterator[str]:
    env = os.environ | {"CLAWPIPE_HOME": str(home.root)}
    with subprocess.Popen([sys.executable, *COMMAND, "--http", "0"], env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[2].rstrip(",")
        finally:
            process.terminate()


def test_http_asks_for_the_secret_and_refuses_other_sites(home):
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
    }
    usual = {"accept": "application/json, text/event-stream"}
    with over_http(home) as url:
        knows = {"authorization": f"Bearer {home_secret(home).partition(':')[2]}"}
        whole = {"authorization": f"Bearer {home_secret(home)}"}
        asked = [usual, usual | {"authorization": "Bearer guess"}, usual | knows, usual | whole]
        asked += [usual | knows | {"origin": "http://evil.example"}, usual | knows | {"host": "evil.example"}]
        answers = [httpx.post(url, json=hello, headers=headers, timeout=60) for headers in asked]
    assert [answer.status_code for answer in answers] == [401, 401, 200, 200, 403, 403]
    assert '"serverInfo"' in answers[2].text


@settings(max_examples=500)
@given(
    tool=st.sampled_from([name for name in HERMES if name != "rl_start_training"]) | st.text(max_size=10),
    arguments=st.dictionaries(NAMES, JSON, max_size=4),
)
@example(tool="rl_check_status", arguments={"run_id": "../../etc/passwd"})
@example(tool="rl_select_environment", arguments={"name": "/etc/hosts:Hosts"})
@example(tool="rl_edit_config", arguments={"field": "train.method", "value": {"$ref": "#"}})
def test_no_arguments_make_a_tool_fail(tmp_path_factory, tool, arguments):
    desk = Desk(Home(tmp_path_factory.getbasetemp() / "fuzzed"), TINY, test_models=["m@http://127.0.0.1:1/v1"])
    answer, _ = call(tools_of(desk), tool, arguments)
    assert "unexpectedly" not in answer.get("error", "")
    assert "Traceback" not in json.dumps(answer)


@settings(max_examples=500)
@given(
    tool=st.sampled_from(["inspect", "ingest", "plan", "sessions", "trace", "promote", "forget"]),
    arguments=st.dictionaries(NAMES | st.just("reason"), JSON | st.text(max_size=9), max_size=4),
)
@example(tool="forget", arguments={"session": "--all"})
@example(tool="trace", arguments={"version": "-h"})
@example(tool="inspect", arguments={"file": "."})
def test_no_argument_becomes_an_option_of_a_command(tmp_path_factory, tool, arguments):
    place, ran = tmp_path_factory.getbasetemp(), []
    desk = Desk(Home(place / "fuzzed"), TINY, data=place)
    with patch.object(home_tools, "_answer", lambda desk, *words: ran.append(words) or {}):
        answer, _ = call(tools_of(desk), tool, arguments)
    assert "unexpectedly" not in answer.get("error", "")
    options = {word for words in ran for word in words if word.startswith("-")}
    assert options <= {"--config", "--session", "--user", "--dry-run"}
    assert not [word for words in ran for word in words if word.startswith("-") and word in map(str, arguments.values())]


def test_no_key_comes_back(home, monkeypatch):
    """What people put into the environment and into the home is not the agent's."""
    keys = {name: f"sk-{name.lower()}" for name in ("OPENAI_API_KEY", "TINKER_API_KEY", "FIREWORKS_API_KEY", "HF_TOKEN")}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    secrets = {*keys.values(), home_secret(home), home_secret(home).partition(":")[2]}
    tools = tools_of(Desk(home, TINY, test_models=["m@http://127.0.0.1:1/v1=TINKER_API_KEY"]))
    asked = [("rl_select_environment", {"name": "letters"}), ("rl_edit_config", {"field": "seed", "value": 3})]
    asked += [(name, {}) for name in ("rl_list_environments", "rl_get_current_config", "rl_list_runs")]
    asked += [("rl_edit_config", {"field": "rollouts.engine.url", "value": 1}), ("rl_check_status", {"run_id": "nope"})]
    for name, arguments in asked:
        answer, _ = call(tools, name, arguments)
        assert not [secret for secret in secrets if secret in json.dumps(answer)], name


def test_files_outside_the_data_directory_are_refused(home, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "secret.jsonl").write_text("{}")
    (data / "out.jsonl").symlink_to(tmp_path / "secret.jsonl")
    tools = tools_of(Desk(home, TINY, data=data))
    for name in ("../secret.jsonl", str(tmp_path / "secret.jsonl"), "out.jsonl"):
        assert call(tools, "inspect", {"file": name})[0]["error"] == "the path leads out of the data directory"
    assert call(tools, "inspect", {"file": "--help"})[1]
    assert call(tools_of(Desk(home, TINY)), "ingest", {"file": "a"})[0]["error"] == "this server reads no files"


def test_a_version_is_named_as_the_command_takes_it():
    for name in ("tiny/3", "models:/tiny/3", "tiny@3"):
        assert home_tools.Version(version=name).version == "tiny@3"
    assert home_tools.Promotion(version="tiny@champion", reason="x").version == "tiny@champion"


def test_long_lists_are_cut_for_a_model_that_pays_for_each():
    cut = home_tools._shortened({"ids": list(range(25)), "few": [1]})
    assert cut == {"ids": [*range(20), "and 5 more"], "few": [1]}


@pytest.mark.slow
def test_a_file_is_ingested_and_forgetting_is_proposed(home, tmp_path):
    line = {"session_id": "s1", "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
    (tmp_path / "chats.jsonl").write_text(json.dumps(line) + "\n")
    tools = tools_of(Desk(home, TINY, data=tmp_path))
    shown, failed = call(tools, "inspect", {"file": "chats.jsonl"})
    assert not failed, shown
    done, failed = call(tools, "ingest", {"file": "chats.jsonl"})
    assert not failed, done
    proposed, failed = call(tools, "forget", {"session": "s1"})
    assert not failed, proposed
    assert proposed["command"] == "clawpipe forget --session s1"
    assert call(tools, "forget", {"session": "s1"})[0]["found"] == proposed["found"]  # nothing was removed
