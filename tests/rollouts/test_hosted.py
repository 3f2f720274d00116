"""A user's environment runs in processes of its own: deadlines hold, errors stay there, and nothing is left."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clawpipe.core.config.night import EnvironmentConfig, Rollouts, Runtime
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.user_code.extensions import CallError, in_one_line
from clawpipe.core.user_code.user_errors import UserErrors
from clawpipe.errors import BusyError, ConfigError, DataError, NotFoundError
from clawpipe.learn.evaluation.heldout.draw import make_task_items
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.version import base_ref
from clawpipe.play.environments.base import Hindsight, Outcome, TaskItem, Verdict
from clawpipe.play.environments.discovery import list_environments, load_environment
from clawpipe.play.environments.ending import Ending, hindsight_of, outcome_of
from clawpipe.play.environments.hosted import HostedEnvironment, open_environment
from clawpipe.play.environments.letters import LettersEnvironment
from clawpipe.play.rollouts.generate import Chunk, generate_chunk
from clawpipe.play.workers.episodes import Rollout
from clawpipe.play.workers.pool import WorkerPool
from tests.rollouts.scripted import play

LIMIT = 5.0  # seconds a call; on a busy machine, every call but one that hangs must take less
LATE = f"it took more than {LIMIT:g} s"

SOURCE = """
import asyncio, json, os, random, subprocess, time
from clawpipe.play.environments.base import Outcome, Verdict, question_item
from clawpipe.errors import BusyError
from clawpipe.core.conversation.messages import Message, ToolSpec

def hang(): time.sleep(1e6)
def broken(): raise ValueError("broken")
def busy(): raise BusyError("no server")

class Mine:
    name = "mine"
    kind = "terminal"
    def __init__(self, does, in_call="respond", mark="1e6"): self.does, self.in_call, self.mark = does, in_call, mark
    def tools(self): return [ToolSpec("add", "Adds.", {"a": "integer", "b": "string"})]
    def preamble(self): return [Message("system", "Add.")]
    def items(self, split, count, seed):
        words = [str(n) for n in range(count)]
        return [question_item(self, split, n, identity=w, part="all", question=w, truth={}) for n, w in enumerate(words)]
    def start(self, item, seed):
        self.item, self.seed, self.draw = item, seed, random.random()
        subprocess.Popen(["sleep", self.mark], start_new_session=True)  # in a session of its own
        subprocess.run(["sh", "-c", f"sleep {self.mark} & exit 0"], check=True)  # an orphan
        self.do("start")
        return self
    def do(self, call):
        if call == self.in_call and self.item.ordinal == 1:
            return eval(self.does)
    def respond(self, messages): return self.do("respond")
    def finish(self, reason):
        self.do("finish")
        return Verdict({"reason": reason, "seed": self.seed, "draw": self.draw, "pid": os.getpid()})
    def close(self): self.do("close")
    def verify(self, item, messages, verdict): return Outcome(1.0, True, "", {})

class Awaits(Mine):
    name = "awaits"
    kind = "terminal"
    async def start(self, item, seed): return Mine.start(self, item, seed)
    async def respond(self, messages):
        await asyncio.sleep(1e6 if self.item.ordinal == 1 else 0)
        return None
    async def finish(self, reason): return Mine.finish(self, reason)
    async def close(self): return None
    def verify(self, item, messages, verdict): return Outcome(1.0, True, "", {})

class Plain(Mine):
    name = "plain"
    kind = "chat"
    def start(self, item): return super().start(item, None)
"""


@pytest.fixture(scope="module")
def base() -> Path:
    return resolve_base("random").path


@pytest.fixture
def mark() -> Iterator[str]:
    """A number of seconds that no other process sleeps; at the end of the test none may be left that sleeps it."""
    mark = f"{random.SystemRandom().randrange(10**6, 10**7)}.5"
    yield mark
    assert left(mark) == []


def left(mark: str, seconds: float = 30.0) -> list[str]:
    """Return what still runs with `mark` among its words, once nothing does or the time is over."""
    end = time.monotonic() + seconds
    while (found := [line for line in _command_lines() if mark in line]) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def _command_lines() -> Iterator[str]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            yield (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(SOURCE)
    return tmp_path / "mine.py"


@contextmanager
def hosted(file: Path, mark: str, does: str, in_call: str = "respond", name: str = "Mine", seconds: float = LIMIT) -> Iterator[Any]:
    options = {"does": does, "in_call": in_call, "mark": mark}
    with open_environment(f"{file}:{name}", options, seconds) as environment:
        assert isinstance(environment, HostedEnvironment)
        environment.items = load_environment(f"{file}:{name}", options).items  # type: ignore[attr-defined]
        yield environment


def played(base: Path, environment: Any, items: int = 3) -> list[Rollout]:
    return play(base, environment, ["Yes."], items=items)[0]


def reasons(rollouts: list[Rollout]) -> list[str | None]:
    return [rollout.play.ending.reason for rollout in rollouts]


def test_an_episode_that_hangs_ends_as_timeout_alone(base, file, mark):
    with hosted(file, mark, "hang()") as environment:
        rollouts = played(base, environment)
        assert reasons(rollouts) == ["done", "timeout", "done"]
        late = rollouts[1].play.ending
        assert late.error == f"respond: {LATE}"
        assert late.verdict
        assert late.verdict.evidence["reason"] == "timeout"  # its world still had its say
        assert left(mark) == []  # while the environment is still there
        assert reasons(played(base, environment, 1)) == ["done"]


@pytest.mark.parametrize(("in_call", "reason"), [("start", "timeout"), ("finish", "done"), ("close", "done")])
def test_every_call_of_an_episode_has_a_deadline(base, file, mark, in_call, reason):
    with hosted(file, mark, "hang()", in_call) as environment:
        rollouts = played(base, environment)
        assert reasons(rollouts) == ["done", reason, "done"]
        late = rollouts[1].play.ending
        assert late.error == ("" if in_call == "close" else f"{in_call}: {LATE}")
        assert (late.verdict is None) == (in_call != "close")
        assert left(mark) == []


@pytest.mark.parametrize(
    ("does", "error"),
    [
        ("broken()", r"respond: ValueError: broken \(mine\.py, line \d+\)"),
        ("os._exit(3)", "respond: its process has ended"),
        ("os.kill(os.getpid(), 9)", "respond: its process has ended"),
        ("exit(0)", "respond: SystemExit: 0"),
        ("[1]", r"respond: TypeError: respond returns a list of messages, an Answer or None, not \[1\]"),
        ("[Message('tool', 'x' * (65 << 20))]", "respond: it answered with more than 64 MiB"),
    ],
)
def test_what_user_code_does_stays_in_its_process(base, file, mark, does, error):
    with hosted(file, mark, does, seconds=30.0) as environment:
        rollouts = played(base, environment)
        assert reasons(rollouts) == ["done", "error", "done"]
        assert re.match(error, rollouts[1].play.ending.error)
        assert left(mark) == []


def test_async_members_are_awaited_and_have_deadlines_too(base, file, mark):
    with hosted(file, mark, "None", name="Awaits") as environment:
        rollouts = played(base, environment)
    assert reasons(rollouts) == ["done", "timeout", "done"]
    assert [bool(rollout.play.ending.verdict) for rollout in rollouts] == [True] * 3
    assert {"mine", "awaits"} <= {info.name for info in list_environments([file.parent])}


@pytest.mark.parametrize("member", ["items", "verify", "tools", "hindsight"])
def test_members_that_are_asked_here_may_not_be_async(tmp_path, member):
    (tmp_path / "mine.py").write_text(f"{SOURCE}\nclass Other(Mine):\n    async def {member}(self, *arguments): ...\n")
    with pytest.raises(ConfigError, match=rf": its {member} is async"):
        load_environment(f"{tmp_path}/mine.py:Other", {"does": ""})
    with pytest.raises(ConfigError, match=rf": its {member} is async"), hosted(tmp_path / "mine.py", "1", "", name="Other"):
        pass


def test_each_episode_has_its_seed_and_its_own_chance(base, file, mark):
    def drawn(name: str = "Mine") -> list[tuple[int, float]]:
        with hosted(file, mark, "None", name=name, seconds=30.0) as environment:
            verdicts = [rollout.play.ending.verdict for rollout in played(base, environment)]
        return [(verdict.evidence["seed"], verdict.evidence["draw"]) for verdict in verdicts if verdict]

    first = drawn()
    assert drawn() == first
    assert len({seed for seed, _ in first}) == len({draw for _, draw in first}) == 3
    assert [seed for seed, _ in drawn("Plain")] == [None] * 3  # `start(item)` as ever


def test_a_builtin_environment_is_given_the_seed_if_it_takes_one(base):
    class Seeded(LettersEnvironment):
        seeds: list[int] = []  # noqa: RUF012

        def start(self, item: TaskItem, seed: int = 0) -> Any:  # type: ignore[override]
            self.seeds.append(seed)
            return super().start(item)

    rollouts = play(base, Seeded(), ["a", "b", "c"], items=2)[0]
    assert Seeded.seeds == [rollout.seed for rollout in rollouts]


def test_errors_of_the_machine_are_raised_as_they_are(base, file, mark):
    with hosted(file, mark, "busy()", seconds=30.0) as environment, pytest.raises(BusyError, match="no server"):
        played(base, environment)


def test_the_tools_are_those_of_the_class(file, mark):
    with hosted(file, mark, "None") as environment:
        local = load_environment(f"{file}:Mine", {"does": ""})
        assert environment.tools() == local.tools()
        assert environment.preamble() == local.preamble()
        assert (environment.name, environment.kind) == ("mine", "terminal")


def test_what_cannot_be_made_is_told_in_one_line(file):
    with pytest.raises(ConfigError, match="does not take these options"), open_environment(f"{file}:Mine", {"no": 1}, 1.0):
        pass
    with pytest.raises(NotFoundError), open_environment(f"{file}:Nobody", {}, 1.0):
        pass
    file.write_text(f"{SOURCE}\nos._exit(1)\n")
    with pytest.raises(ConfigError, match="its process has ended"), open_environment(f"{file}:Mine", {"does": ""}, 1.0):
        pass


def items_made(file: Path, mark: str, body: str, count: int = 2) -> list[TaskItem]:
    """Return the items of an environment whose `items` has this body, in which `made` are the right ones."""
    file.write_text(f"""{SOURCE}
from dataclasses import replace
from itertools import count as count_up
class Other(Mine):
    name = "other"
    def items(self, split, count, seed):
        made = super().items(split, count, seed)
        {body}
""")
    with open_environment(f"{file}:Other", {"does": "0", "mark": mark}, LIMIT) as environment:
        return environment.items("train", count, 0)


@pytest.mark.parametrize(
    ("body", "error", "told"),
    [
        ("return None", ConfigError, "returns None"),
        ("return [{'prompt': 'Hi.'}]", ConfigError, "is no TaskItem"),
        ("return made[:1]", DataError, "2 train items wanted, it has 1"),
        ("return [replace(one, environment='mine') for one in made]", ConfigError, "number 0: its environment is 'mine'"),
        ("return [replace(one, split='training') for one in made]", ConfigError, "its split is 'training'"),
        ("return [made[0], replace(made[1], item_id=1)]", ConfigError, "number 1: its item_id is no text"),
        ("return [made[0], replace(made[1], item_id='HumanEval/1')]", ConfigError, "its item_id is 'HumanEval/1'"),
        ("return [replace(one, identity='') for one in made]", ConfigError, "its identity is empty"),
        ("return [replace(one, truth={}) for one in made]", ConfigError, "its truth is no text"),
        ("return [replace(one, messages=()) for one in made]", ConfigError, "its messages"),
        ("return [replace(one, messages=(Message('human', 'x'),)) for one in made]", ConfigError, "role"),
        ("return [replace(one, messages=(Message('user', ['x']),)) for one in made]", ConfigError, "is a text"),
        ("return [replace(one, messages=(Message('user', '\\ud800'),)) for one in made]", ConfigError, "surrogates"),
    ],
)
def test_an_item_that_is_none_is_named_at_once(file, mark, body, error, told):
    with pytest.raises(error, match=re.escape(told)):
        items_made(file, mark, body)


def test_items_may_be_any_iterable_and_of_any_size(file, mark):
    endless = "return (replace(made[0], item_id=str(n)) for n in count_up())"
    assert [item.item_id for item in items_made(file, mark, endless)] == ["0", "1"]
    long = "return [replace(one, messages=(Message('user', 'x' * 1_000_000),)) for one in made]"
    assert len(items_made(file, mark, long, 80)) == 80


def test_a_killed_host_is_started_again(base, file, mark):
    with hosted(file, mark, "None", seconds=30.0) as environment:
        [before] = played(base, environment, 1)
        verdict = before.play.ending.verdict
        assert isinstance(verdict, Verdict)
        assert left(mark) == []
        environment._process.send_signal(signal.SIGKILL)
        environment._process.wait()
        assert reasons(played(base, environment)) == ["done"] * 3


def test_nothing_is_left_when_the_parent_is_killed(file, mark):
    code = (
        "import sys, time\n"
        "from clawpipe.play.environments.hosted import HostedEnvironment\n"
        "from clawpipe.play.environments.discovery import load_environment\n"
        f"name, options = {f'{file}:Mine'!r}, {{'does': '', 'mark': {mark!r}}}\n"
        "environment = HostedEnvironment(name, options, 30.0)\n"
        "episodes = [environment.start(item, 0) for item in load_environment(name, options).items('train', 3, 0)]\n"
        "print('playing', flush=True)\n"
        "time.sleep(1e6)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout
        assert parent.stdout.readline() == "playing\n"
        assert len([line for line in _command_lines() if f"sleep {mark}" in line]) == 6
        os.kill(parent.pid, signal.SIGKILL)
    assert left(mark) == []


def test_a_night_records_the_timeout_and_goes_on(tmp_path, file, mark, quick_children):
    environment = EnvironmentConfig(
        name=f"{file}:Mine", options={"does": "hang()", "mark": mark}, train_items=3, heldout_items=1, call_timeout=LIMIT
    )
    store, policy = Store(tmp_path / "store"), base_ref("random", resolve_base("random").digest, "pythonic", "float32")
    items = make_task_items(store, environment).output
    config = Rollouts(items=3, group_size=2, temperature=1.0, max_new_tokens=6, max_turns=2, chunks=1, shard_rollouts=6)
    chunk = Chunk(ordinals=(0, 1, 2), together=(0, 1, 2))
    with WorkerPool(Runtime(device="cpu", workers=1), tmp_path / "logs") as pool:
        made = generate_chunk(store, pool, tmp_path / "work", items, policy, environment, config, chunk, 3)
    rows = read_dataset(store, made.output).to_pylist()
    assert [row["ended"] for row in rows] == ["length", "length", "timeout", "timeout", "length", "length"]
    assert rows[2]["error"] == f"respond: {LATE}"
    assert json.loads(rows[2]["verdict"])["reason"] == "timeout"


JUDGES = """
class Judges(Mine):
    name = "judges"
    def verify(self, item, messages, verdict):
        self.item = item
        evidence = {"verdict": verdict and verdict.evidence, "said": messages[-1].content}
        return self.do("verify") or Outcome(0.5, True, "right", evidence)
    def hindsight(self, item, messages, verdict):
        from clawpipe.play.environments.base import Hindsight
        return Hindsight((f"Say {item.ordinal}.",), (Message("assistant", "1"),)) if item.ordinal else None
"""


@pytest.fixture
def judging(file: Path) -> Path:
    file.write_text(SOURCE + JUDGES)
    return file


def judged(environment: Any, ordinal: int, verdict: Verdict | None = None) -> Any:
    item = environment.items("train", 2, 0)[ordinal]
    return outcome_of(environment, item, [*item.messages, Message("assistant", "hi")], Ending("done", verdict))


def test_recorded_episodes_are_judged_in_a_process_as_well(judging, mark):
    with hosted(judging, mark, "None", "verify", "Judges", 30.0) as environment:
        evidence = {"verdict": {"a": [1]}, "said": "hi"}
        assert judged(environment, 0, Verdict({"a": [1]})) == Outcome(0.5, True, "right", evidence)
        assert judged(environment, 1).evidence == {"verdict": None, "said": "hi"}
        first, second = environment.items("train", 2, 0)
        assert hindsight_of(environment, first, [], Ending()) is None
        assert hindsight_of(environment, second, [], Ending()) == Hindsight(("Say 1.",), (Message("assistant", "1"),))


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("broken()", r"ValueError: broken \(mine\.py, line \d+\)"),
        ("hang()", f"CallTimeoutError: {LATE}"),
        ("os._exit(3)", "EndedError: its process has ended"),
        ("exit(0)", r"SystemExit: 0 \("),
        ("1.0", r"TypeError: verify returns an Outcome, not float"),
        ("Outcome(0.5, True, '', {'a': {1}})", "TypeError: Object of type set is not JSON serializable"),
    ],
)
def test_what_a_verifier_does_is_told_and_the_next_is_asked(judging, mark, does, told):
    with hosted(judging, mark, does, "verify", "Judges") as environment:
        with pytest.raises(CallError) as caught:
            judged(environment, 1)
        assert re.match(told, in_one_line(caught.value))
        assert judged(environment, 0).value == 0.5


def test_the_log_has_the_traceback_of_user_code(judging, mark, tmp_path):
    errors = UserErrors(tmp_path / "verify.log")
    with hosted(judging, mark, "broken()", "verify", "Judges", 30.0) as environment, pytest.raises(CallError) as caught:
        judged(environment, 1)
    errors.add(caught.value, {})
    assert 'def broken(): raise ValueError("broken")' in (tmp_path / "verify.log").read_text()
    assert errors.details()["raised"].startswith("the environment raised on 1 row: ValueError: broken (mine.py, line ")
