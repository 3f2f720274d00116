"""The environment `agent`: the key knows the program, and verdicts are read from what is recorded."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from clawpipe.core.conversation.messages import Message
from clawpipe.errors import ConfigError
from clawpipe.play.environments.agent import AgentEnvironment
from clawpipe.play.environments.base import Verdict

SAID = (Message("user", "Say a."), Message("assistant", "a"), Message("user", "Go on."))


@pytest.fixture
def tasks(tmp_path: Path) -> str:
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(f"{json.dumps({'prompt': f'Say a, {n} times.', 'answer': 'a'})}\n" for n in range(20)))
    return str(file)


def test_the_last_reply_is_checked_whatever_followed_it(tasks: str):
    environment = AgentEnvironment(["true"], tasks)
    [item] = environment.items("train", 1, 0)
    assert environment.verify(item, SAID).success
    assert not environment.verify(item, [*SAID, Message("assistant", "b")]).success


def test_what_the_judging_program_said_is_the_outcome(tasks: str):
    environment = AgentEnvironment(["true"], tasks, check=["judge"])
    [item] = environment.items("train", 1, 0)
    outcome = environment.verify(item, SAID, Verdict({"check": {"value": 0.5, "success": False, "reason": "half"}}))
    assert (outcome.value, outcome.success, outcome.reason) == (0.5, False, "half")
    with pytest.raises(ValueError, match="did not run"):
        environment.verify(item, SAID, Verdict({"exit": 0}))


def test_another_program_is_another_input(tmp_path: Path):
    program = tmp_path / "program"
    digests = set()
    for text in ("#!/bin/sh\ntrue\n", "#!/bin/sh\nfalse\n", f"#!{sys.executable}\n"):
        program.write_text(text)
        program.chmod(0o700)
        digests.add(AgentEnvironment.inputs_digest({"command": [str(program)]}))
    assert len(digests) == 3
    assert AgentEnvironment.inputs_digest({"command": [sys.executable]}) in digests  # a script of that Python
    assert AgentEnvironment.inputs_digest({"command": ["in-the-image-alone"]}) not in digests


def test_it_refuses_to_play_without_an_engine_with_tokens(tasks: str):
    environment = AgentEnvironment(["true"], tasks)
    [item] = environment.items("train", 1, 0)
    with pytest.raises(ConfigError, match="tokens"):
        environment.start(item)


def test_tasks_that_no_program_can_be_given_are_set_aside(tmp_path: Path):
    file = tmp_path / "tasks.jsonl"
    lines = [{"prompt": "Say a."}, {"prompt": "a\0b"}, {"prompt": "é" * 70_000}, {"prompt": "b", "answer": "x" * 130_000}]
    file.write_text("".join(f"{json.dumps({'answer': 'a'} | line)}\n" for line in lines))
    environment = AgentEnvironment(["true"], str(file), check=["judge"])
    sides = [(side, environment.distinct_items(side)) for side in ("train", "heldout")]
    assert [item.messages[0].content for side, n in sides for item in environment.items(side, n, 0)] == ["Say a."]
    [told] = environment.warnings()
    assert "3 lines are no prompts" in told
    unjudged = AgentEnvironment(["true"], str(file))
    assert sum(map(unjudged.distinct_items, ("train", "heldout"))) == 2  # no program is told the answer
