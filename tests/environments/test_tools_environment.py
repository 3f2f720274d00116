"""Prompts whose tools a real MCP server runs."""

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.errors import ConfigError, DataError
from clawpipe.play.environments.base import Verdict
from clawpipe.play.environments.discovery import load_environment
from clawpipe.play.environments.play import Play

SERVER = '''
import os, sys
from mcp.server import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("calculator")
total = 0

@server.tool(annotations=ToolAnnotations(readOnlyHint=sys.argv[1] == "reads"))
def process() -> int:
    """The server's process."""
    return os.getpid()

@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

if sys.argv[1] == "keeps":
    @server.tool()
    def keep(number: int) -> str:
        global total
        total += number
        return str(total)

    @server.tool()
    def stop() -> str:
        os._exit(3)

server.run(transport="stdio")
'''
PROMPTS = [{"prompt": f"What is {number} and 2?", "answer": number + 2, "check": "numeric"} for number in range(20)]
ADDED = {"name": "add", "arguments": {"a": 5, "b": 2}}


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """make(kind, prompts): an environment with a server that keeps a total, or one that only reads."""
    folder = tmp_path_factory.mktemp("tools")
    (folder / "server.py").write_text(SERVER)

    def new(kind="keeps", prompts=PROMPTS, **options):
        (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, prompts)))
        server = f"{sys.executable} '{folder / 'server.py'}' {kind}"
        return load_environment("tools", {"file": str(folder / "prompts.jsonl"), "server": server, "share": 0.5} | options)

    return new


@pytest.fixture
def begin():
    """begin(environment): an episode of its first item, which is closed after the test."""
    begun = []

    def new(environment):
        begun.append(environment.start(environment.items("train", 1, 0)[0]))
        return begun[-1]

    yield new
    for episode in begun:
        episode.close()


def called(name, arguments="{}", malformed=False, turn=0):
    return Message("assistant", "", (ToolCall(f"call_{turn}_0", name, arguments, malformed),))


def result(episode, *call):
    [answer] = episode.respond([Message("user", "q"), called(*call)])
    assert (answer.role, answer.tool_call_id, answer.name) == ("tool", "call_0_0", call[0])
    return answer.content


def test_the_tools_are_the_servers(make):
    assert [tool.name for tool in make("reads").tools()] == ["process", "add"]
    assert {len(make().items(split, 5, 0)) for split in ("train", "heldout")} == {5}


def test_calls_run_and_a_reply_without_calls_ends_the_episode(make, begin):
    episode = begin(make())
    two = Message("assistant", "", (ToolCall("a", "add", '{"a": 1, "b": 2}'), ToolCall("b", "add", '{"a": 3, "b": 4}')))
    assert [answer.content for answer in episode.respond([two])] == ["3", "7"]
    assert episode.respond([Message("assistant", "The answer is 3.")]) is None


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (("add", "add(1", True), "error: malformed call"),
        (("subtract", "{}"), "error: unknown tool subtract"),
        (("add", '{"a": 1}'), "error: 'b' is a required property"),
        (("add", '{"a": 1, "b": "two"}'), "error: b: 'two' is not of type 'integer'"),
    ],
)
def test_calls_that_cannot_run_are_answered_with_an_error(make, begin, call, said):
    assert result(begin(make()), *call) == said


def test_each_episode_has_a_state_of_its_own(make, begin):
    environment = make()
    one, other = begin(environment), begin(environment)
    assert [result(one, "keep", '{"number": 2}') for _ in range(2)] == ["2", "4"]
    assert result(other, "keep", '{"number": 2}') == "2"


def test_episodes_share_a_server_whose_tools_change_nothing(make, begin):
    environment = make("reads")
    one, other = begin(environment), begin(environment)
    assert result(one, "process") == result(other, "process")


def test_episodes_that_begin_together_start_one_server(make, begin):
    environment = make("reads")
    episodes = [begin(environment) for _ in range(4)]
    together = threading.Barrier(len(episodes))

    def process(episode):
        together.wait()
        return result(episode, "process")

    with ThreadPoolExecutor(len(episodes)) as threads:
        assert len(set(threads.map(process, episodes))) == 1


def test_a_server_that_a_call_has_ended_is_started_again(make, begin):
    episode = begin(make())
    first = result(episode, "process")
    assert result(episode, "stop").startswith("error: ")
    assert result(episode, "process") != first


def test_the_reply_is_checked(make):
    environment = make()
    [item] = environment.items("train", 1, 0)
    right = json.loads(item.truth)["answer"]
    spoken = [*item.messages, called("add", '{"a": 1, "b": 2}'), Message("tool", "3", tool_call_id="call_0_0", name="add")]
    assert environment.verify(item, [*spoken, Message("assistant", f"It is {right}.")]).success
    assert not environment.verify(item, [*spoken, Message("assistant", f"It is {right + 1}.")]).success
    unanswered = environment.verify(item, spoken)
    assert (unanswered.success, unanswered.value, unanswered.reason) == (False, 0.0, "no answer")


def test_the_calls_of_the_whole_episode_are_checked(make):
    environment = make(prompts=[prompt | {"answer": [ADDED, ADDED], "check": "tool_call"} for prompt in PROMPTS])
    [item] = environment.items("train", 1, 0)
    call = called("add", json.dumps(ADDED["arguments"]))
    answer = Message("tool", "7", tool_call_id="call_0_0", name="add")
    assert environment.verify(item, [*item.messages, call, answer, call, answer, Message("assistant", "7")]).success
    assert environment.verify(item, [*item.messages, call, answer, call, answer]).success
    assert not environment.verify(item, [*item.messages, call, answer, Message("assistant", "7")]).success


def test_options_that_make_no_environment_are_refused(make):
    with pytest.raises(ConfigError, match="above 0"):
        make(timeout_s=0)
    with pytest.raises(ConfigError, match="no-such-program"):
        make(server="no-such-program").tools()
    with pytest.raises(DataError):
        make(prompts=[{"answer": 3}])


def kept(*numbers):
    """An episode in which the model kept numbers, with what the server returned."""
    messages, total = [Message("user", "Keep them.")], 0
    for number in numbers:
        total += number
        call = ToolCall(str(number), "keep", json.dumps({"number": number}))
        messages += [Message("assistant", "", (call,)), Message("tool", str(total), tool_call_id=call.id, name="keep")]
    return [*messages, Message("assistant", "Kept.")]


STATE = {"prompt": "Keep 3 and 4.", "check": "state", "answer": {"name": "keep", "arguments": {"number": 0}, "result": 7}}


def one_item(make, line, **options):
    environment = make(prompts=[line, {**line, "prompt": "Keep 4 and 3."}, {**line, "prompt": "3, 4!"}], **options)
    return environment, environment.every_item()[0]


def test_an_episode_is_verified_by_the_state_that_it_leaves(make):
    """Whatever the model says, and by whichever calls it got there."""
    environment, item = one_item(make, STATE)
    assert environment.verify(item, kept(3, 4)).success
    assert environment.verify(item, kept(5, 2)).success
    assert not environment.verify(item, kept(3)).success
    assert not environment.verify(item, kept()).success


@pytest.mark.parametrize(("numbers", "success"), [((3, 4), True), ((5, 2), True), ((3,), False), ((), False)])
def test_the_state_is_asked_while_the_server_runs(make, numbers, success):
    """When an episode ends, for whatever reason, by calls that its messages do not hold."""
    environment, item = one_item(make, STATE)
    play, messages = Play(environment, item, 0), list(item.messages)
    for number in numbers:
        messages.append(Message("assistant", "", (ToolCall("1", "keep", json.dumps({"number": number})),)))
        messages += play.answer(messages).messages
    play.end("max_turns")
    assert play.ending.verdict == Verdict({"state": [str(sum(numbers))]})
    assert environment.verify(item, messages, play.ending.verdict).success is success
    assert len(messages) == len(item.messages) + 2 * len(numbers)


def test_an_unrepeatable_episode_is_verified_by_its_verdict(make):
    environment, item = one_item(make, STATE)
    other = [*kept(3)[:2], Message("tool", "12", tool_call_id="3", name="keep")]
    assert environment.verify(item, other, Verdict({"state": ["7"]})).success


def test_only_a_check_of_state_asks_the_server(make):
    environment, item = one_item(make, {**STATE, "check": "tool_call"})
    play = Play(environment, item, 0)
    play.end("done")
    assert play.ending.verdict is None


def test_calls_that_were_never_run_are_not_repeated(make):
    environment, item = one_item(make, STATE)
    cut = [*kept(3)[:-1], Message("assistant", "", (ToolCall("4", "keep", json.dumps({"number": 4})),))]
    assert not environment.verify(item, cut).success


def test_an_episode_of_unrepeatable_answers_is_not_verified(make):
    environment, item = one_item(make, STATE)
    other = [*kept(3)[:2], Message("tool", "12", tool_call_id="3", name="keep")]
    with pytest.raises(ValueError, match="repeated"):
        environment.verify(item, other)


def test_the_state_of_a_running_server_is_not_asked(make):
    with pytest.raises(ConfigError, match="running server"):
        one_item(make, STATE, server="http://127.0.0.1:9/mcp")


def test_a_state_needs_tools_that_run(tmp_path):
    (tmp_path / "prompts.jsonl").write_text(json.dumps(STATE))
    with pytest.raises(DataError, match="tools that run"):
        load_environment("prompts", {"file": str(tmp_path / "prompts.jsonl")})
