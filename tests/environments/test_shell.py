"""The shell tool: what the policy reads of its commands, and when its episode is over."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.play.environments.shell import Shell, ShellLimits, cut
from clawpipe.play.sandbox.base import Limits
from clawpipe.play.sandbox.unsafe_local import UnsafeLocal

LIMITS = ShellLimits(seconds=5.0, steps=4, characters=40)


@pytest.fixture
def box() -> Iterator[UnsafeLocal]:
    sandbox = UnsafeLocal(Limits(output_bytes=1000))
    yield sandbox
    sandbox.close()


def shell(box: UnsafeLocal, **limits: float) -> Shell:
    return Shell(box, ShellLimits(**{**vars(LIMITS), **limits}))  # type: ignore[arg-type]


def turn(*commands: object) -> list[Message]:
    calls = [ToolCall(f"c{n}", "bash", json.dumps({"command": command})) for n, command in enumerate(commands)]
    return [Message("user", "Go."), Message("assistant", "", tuple(calls))]


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        ("echo hi", "hi\n[exit code 0]"),
        ("printf hi", "hi\n[exit code 0]"),
        ("true", "[exit code 0]"),
        ("echo no >&2; exit 3", "no\n[exit code 3]"),
        ("kill -9 $$", "[exit code -9]"),
        ("[[ a == a ]] && echo bash", "bash\n[exit code 0]"),
        ("cat", "[exit code 0]"),
        ("sleep 60", "[ended after 5 seconds]"),
        ("seq 10000", None),
        ("printf 'ab\\377'", "ab\N{REPLACEMENT CHARACTER}\n[exit code 0]"),
    ],
)
def test_a_reply_has_output_and_exit_code(box: UnsafeLocal, command: str, reply: str | None) -> None:
    said = shell(box).run(command)
    assert said == reply if reply else said.endswith("[ended: too much output]")


def test_long_output_keeps_head_and_tail(box: UnsafeLocal) -> None:
    said = shell(box).run("seq -w 1 30")
    assert said.startswith("01\n02\n03\n04\n05\n06\n07")
    assert "50 characters left out" in said
    assert said.endswith("28\n29\n30\n[exit code 0]")


@pytest.mark.parametrize("characters", [1, 2, 3, 10])
def test_cut_keeps_as_many_characters_as_told(characters: int) -> None:
    head, _, tail = cut("abcdefghijk", characters).split("\n")
    assert len(head + tail) == characters
    assert "abcdefghijk".startswith(head)
    assert "abcdefghijk".endswith(tail)


def test_calls_of_a_turn_run_in_order(box: UnsafeLocal) -> None:
    answer = shell(box).respond(turn("echo 1 > f", "cat f"))
    assert [(m.role, m.content, m.tool_call_id, m.name) for m in answer.messages] == [
        ("tool", "[exit code 0]", "c0", "bash"),
        ("tool", "1\n[exit code 0]", "c1", "bash"),
    ]
    assert not answer.done


def test_a_turn_without_calls_ends_the_episode(box: UnsafeLocal) -> None:
    answer = shell(box).respond([Message("assistant", "Done.")])
    assert answer.done
    assert not answer.messages


def test_steps_are_counted_and_end_the_episode(box: UnsafeLocal) -> None:
    tool = shell(box, steps=2)
    assert not tool.respond(turn("echo 1")).done
    answer = tool.respond(turn("echo 2", "echo 3 > f"))
    assert answer.done
    assert tool.steps == 2
    assert [m.content for m in answer.messages] == ["2\n[exit code 0]", "error: the episode is over"]
    assert box.exec("ls").stdout == b""


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        (ToolCall("c", "bash", "{broken", malformed=True), "error: malformed call"),
        (ToolCall("c", "sh", "{}"), "error: unknown tool sh"),
        (ToolCall("c", "bash", "{}"), "error: "),
        (ToolCall("c", "bash", '{"command": 3}'), "error: "),
        (ToolCall("c", "bash", json.dumps({"command": "a\0b"})), "error: a command has no NUL"),
        (ToolCall("c", "bash", json.dumps({"command": "x" * 200_000})), "error: a command has no NUL"),
    ],
)
def test_a_wrong_call_is_a_step_and_is_told(box: UnsafeLocal, call: ToolCall, reply: str) -> None:
    tool = shell(box)
    answer = tool.respond([Message("assistant", "", (call,))])
    assert answer.messages[0].content.startswith(reply)
    assert tool.steps == 1
    assert not answer.done


def test_an_episode_ends_with_its_sandbox(box: UnsafeLocal) -> None:
    box.close()
    answer = shell(box).respond(turn("echo 1", "echo 2"))
    assert answer.done
    assert [m.content for m in answer.messages] == ["[the sandbox has died]", "error: the episode is over"]
