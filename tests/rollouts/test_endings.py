"""How episodes end: the world is asked while it stands, what it says is recorded, and `verify` reads the record."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.config.environment import EnvironmentSpec
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.contracts.validate import validate
from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.core.user_code.user_errors import UserErrors
from clawpipe.errors import BusyError, DataError
from clawpipe.learn.evaluation.heldout.heldout import results_of
from clawpipe.model.engines.servers import RefusedRequestError
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.version import base_ref
from clawpipe.play.environments.base import Answer, Hindsight, Outcome, TaskItem, Verdict, question_item
from clawpipe.play.environments.ending import COLUMNS, Ending, EpisodeTimeoutError, FailedEpisodeError, checked, outcome_of
from clawpipe.play.environments.letters import LettersEnvironment
from clawpipe.play.judging.scoring import score_dataset
from clawpipe.play.judging.verifier import VerifierScorer
from clawpipe.play.workers.episodes import EpisodeLimits, trajectory_rows
from tests.rollouts.scripted import LIMITS, chat, play

SOLVES = ['bash(command="echo w0 > out.txt")', "Done."]
HALF = "half a surrogate pair: \udcff"  # as Python reads a name of a file that is no UTF-8
SPOOFS = ['bash(command="echo __verdict__ ok; echo passed: true")', '{"passed": true}']


class Terminal:
    """The policy writes a word into a file of a folder that goes with the episode."""

    name, kind = "terminal", "terminal"

    def __init__(self) -> None:
        self.log: list[str] = []

    def tools(self) -> list[ToolSpec]:
        return [ToolSpec("bash", "Run a command.", {"command": "string"})]

    def preamble(self) -> list[Message]:
        return []

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        numbers = range(count)
        return [
            question_item(self, split, n, identity=f"{n}", part="all", question=f"Write w{n}.", truth={"n": n}) for n in numbers
        ]

    def start(self, item: TaskItem) -> Any:
        return Shell(self, json.loads(item.truth)["n"])

    def verify(self, item: TaskItem, messages: Sequence[Message], verdict: Verdict | None) -> Outcome:
        passed = verdict is not None and verdict.evidence["passed"]
        return Outcome(float(passed), passed, "tests", dict(verdict.evidence) if verdict else {})


class Shell:
    def __init__(self, environment: Terminal, number: int) -> None:
        self.environment, self.number = environment, number
        self.folder = tempfile.TemporaryDirectory()

    def respond(self, messages: Sequence[Message]) -> list[Message] | Answer | None:
        calls = messages[-1].tool_calls
        return [Message("tool", self.run(json.loads(call.arguments)["command"]), tool_call_id=call.id) for call in calls] or None

    def run(self, command: str) -> str:
        return (
            subprocess.run(["sh", "-c", command], cwd=self.folder.name, capture_output=True, text=True, check=False).stdout or "-"
        )

    def finish(self, reason: str) -> Verdict | None:
        self.environment.log.append(reason)
        file = Path(self.folder.name, "out.txt")
        return Verdict({"passed": file.is_file() and file.read_text().strip() == f"w{self.number}"})

    def close(self) -> None:
        self.environment.log.append("closed")
        self.folder.cleanup()


class Changed(Terminal):
    """A terminal whose shells have other members: `Changed(finish=...)`."""

    def __init__(self, **members: Any) -> None:
        super().__init__()
        self.members = members

    def start(self, item: TaskItem) -> Any:
        return type("Changed", (Shell,), self.members)(self, json.loads(item.truth)["n"])


@pytest.fixture(scope="module")
def base() -> Path:
    return resolve_base("random").path


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def raises(*_: Any) -> Any:
    raise ValueError("broken")


def stored(store: Store, rollouts: Sequence[Any]) -> Any:
    rows = list(trajectory_rows(rollouts, "p", "r", 1.0))
    return publish_dataset(store, "trajectories", [pa.Table.from_pylist(rows, schema=schema_of("trajectories"))])


@pytest.mark.parametrize(("texts", "passed"), [(SOLVES, True), (SPOOFS, False), (["Done."], False)])
def test_the_world_says_whether_a_task_was_solved(base, texts, passed):
    environment = Terminal()
    [rollout], shown = play(base, environment, texts)
    assert rollout.play.ending.verdict == Verdict({"passed": passed})
    assert outcome_of(environment, rollout.item, rollout.messages, rollout.play.ending).value == float(passed)
    assert '"passed"' not in shown  # the policy never sees its verdict
    assert environment.log == ["done", "closed"]


def test_a_model_at_an_endpoint_is_judged_by_the_world_too():
    environment = Terminal()
    call = Message("assistant", "", (ToolCall("c", "bash", '{"command": "echo w0 > out.txt"}'),))
    [solved], shown = chat(environment, lambda messages: call if messages[-1].role == "user" else "Done.")
    assert (solved.value, solved.success, solved.ending.reason, solved.error) == (1.0, True, "done", "")
    assert not any("passed" in message.content for message in shown)
    [left], _ = chat(environment, lambda messages: "Done.")
    assert (left.value, left.success) == (0.0, False)
    [endless], _ = chat(environment, lambda messages: call)
    assert (endless.ending.reason, endless.finish_reason, endless.value) == ("max_turns", "max_turns", 1.0)
    [cut], _ = chat(environment, lambda messages: "Do", reason="length")
    assert (cut.ending.reason, cut.finish_reason) == ("length", "length")
    assert environment.log == ["done", "closed", "done", "closed", "max_turns", "closed", "length", "closed"]


@pytest.mark.parametrize(
    ("what", "is_length"),
    [
        ("This model's maximum context length is 4096 tokens.", True),
        ("The prompt is too long: 5000 tokens", True),
        ("no tools", False),
    ],
)
def test_a_conversation_that_outgrows_an_endpoint_is_cut(what: str, is_length: bool):
    def say(messages: Sequence[Message]) -> Message:
        if messages[-1].role == "tool":
            raise RefusedRequestError(f"it answers 400: {what}", "http://x")
        return Message("assistant", "", (ToolCall("c", "bash", '{"command": "echo w0 > out.txt"}'),))

    if not is_length:
        with pytest.raises(RefusedRequestError):
            chat(Terminal(), say)
        return
    [cut], _ = chat(Terminal(), say)
    assert (cut.ending.reason, cut.finish_reason, cut.value, cut.messages[-1].role) == ("length", "length", 1.0, "tool")


def test_a_first_request_that_is_refused_is_raised():
    def refuse(messages: Sequence[Message]) -> str:
        raise RefusedRequestError("it answers 400: max_tokens is beyond the context", "http://x")

    with pytest.raises(RefusedRequestError):
        chat(Terminal(), refuse)


@pytest.mark.parametrize(
    ("texts", "limits", "reason", "finish_reason"),
    [
        (SOLVES, LIMITS, "done", "stop"),
        ([SOLVES[0], "Do..."], LIMITS, "length", "length"),
        ([SOLVES[0]] * 3, LIMITS, "max_turns", "max_turns"),
        ([SOLVES[0]] * 3, EpisodeLimits(1.0, 400, 3, 500), "length", "length"),
        (["bash(command=1)"], LIMITS, "error", "stop"),
    ],
)
def test_the_world_is_told_why_the_episode_ends(base, texts, limits, reason, finish_reason):
    environment = Terminal()
    [rollout], _ = play(base, environment, texts, limits=limits)
    assert environment.log == [reason, "closed"]  # once, before it is closed
    assert (rollout.play.ending.reason, rollout.finish_reason) == (reason, finish_reason)


def test_what_an_episode_raises_ends_that_episode_alone(base, store):
    def once(shell: Shell, messages: Sequence[Message]) -> Any:
        return raises() if shell.number == 1 else Shell.respond(shell, messages)

    environment = Changed(respond=once)
    rollouts, _ = play(base, environment, ["Done."], items=3)
    assert [rollout.play.ending.reason for rollout in rollouts] == ["done", "error", "done"]
    assert environment.log.count("closed") == 3
    error = rollouts[1].play.ending.error
    assert error.startswith("respond: ValueError: broken (test_endings.py, line ")
    with pytest.raises(FailedEpisodeError, match="respond: ValueError: broken"):
        outcome_of(environment, rollouts[1].item, rollouts[1].messages, rollouts[1].play.ending)
    accepted = validate(store, stored(store, rollouts), "trajectories")
    assert (accepted.rows_out, accepted.filtered) == (3, {})
    assert [row["error"] for row in read_dataset(store, accepted.output).to_pylist()] == [None, error, None]


def test_an_error_that_utf8_cannot_express_is_recorded(base):
    def odd(*_: Any) -> Any:
        raise ValueError(HALF)

    rollouts, _ = play(base, Changed(respond=odd), SOLVES)
    [row] = trajectory_rows(rollouts, "v" * 16, "r", 1.0)
    assert pa.Table.from_pylist([row], schema_of("trajectories"))["error"][0].as_py().startswith("respond: ValueError: half a")


@pytest.mark.parametrize("room", [0, 1])
def test_a_prompt_that_fills_the_context_is_set_aside_alone(base, room):
    """The longer of two prompts has as many tokens as the model's context holds, or one less."""
    environment = LettersEnvironment()
    begun, _ = play(base, environment, ["a", "b"], items=2)  # a short word and a long one
    sizes = [rollout.prompt_tokens for rollout in begun]
    rollouts, seen = play(
        base, environment, ["a", "b"], items=2, limits=replace(LIMITS, max_tokens=sizes[1] + room, max_new_tokens=1)
    )
    assert [len(rollout.turns) for rollout in rollouts] == [1, room]
    longer = rollouts[1]
    assert (longer.play.ending.reason, longer.finish_reason) == ("length", "length")
    assert (rollouts[1].item.messages[0].content in seen) == bool(room)
    if not room:
        with pytest.raises(FailedEpisodeError, match=f"{sizes[1]} tokens, and the model's context holds {sizes[1]}"):
            outcome_of(environment, longer.item, longer.messages, longer.play.ending)


def test_an_episode_that_cannot_start_is_a_row_without_tokens(base, store):
    class Half(Terminal):
        def start(self, item: TaskItem) -> Any:
            return raises() if item.ordinal == 0 else super().start(item)

    environment = Half()
    rollouts, _ = play(base, environment, ["Done."], items=2)
    ref = stored(store, rollouts)
    result = validate(store, ref, "trajectories")
    assert (result.rows_out, result.filtered) == (2, {})
    rows = read_dataset(store, ref).to_pylist()
    assert [(row["tokens"], row["ended"], row["error"] is None) for row in rows] == [
        ("none", "error", False),
        ("recorded", "done", True),
    ]
    [unstarted], shown = chat(environment, lambda messages: "Done.")
    assert (unstarted.success, unstarted.ending.reason, shown) == (None, "error", [])


@pytest.mark.parametrize(
    ("finish", "said"),
    [
        (raises, "finish: ValueError: broken"),
        (lambda *_: {"passed": True}, "finish: TypeError: finish returns a Verdict or None, not {'passed': True}"),
        (lambda *_: Verdict([1]), "finish: TypeError: a verdict's evidence is a JSON object, not list"),  # type: ignore[arg-type]
        (lambda *_: Verdict({"at": float("nan")}), "finish: ValueError"),
        (lambda *_: Verdict({"at": object()}), "finish: TypeError"),
        (lambda *_: Verdict({"file": HALF}), "finish: UnicodeEncodeError"),
    ],
)
def test_a_faulty_verdict_is_no_failure_of_the_policy(base, finish, said):
    environment = Changed(finish=finish)
    [rollout], _ = play(base, environment, SOLVES)
    assert rollout.play.ending.error.startswith(said)
    assert (rollout.play.ending.verdict, environment.log) == (None, ["closed"])
    with pytest.raises(FailedEpisodeError):
        outcome_of(environment, rollout.item, rollout.messages, rollout.play.ending)


@pytest.mark.parametrize(
    "answer",
    [
        {"role": "user"},
        "text",
        ["text"],
        Answer((), reward=float("inf")),
        Answer("text"),  # type: ignore[arg-type]
        [Message("user", None)],  # type: ignore[arg-type]
        [Message("user", HALF)],
        [Message("human", "Hi.")],  # type: ignore[arg-type]
        [Message("tool", "3", name=HALF)],
        [Message("tool", "3", tool_call_id=7)],  # type: ignore[arg-type]
        [Message("assistant", "", ({"name": "add"},))],  # type: ignore[arg-type]
    ],
)
def test_an_answer_of_another_type_is_an_error_of_the_episode(base, answer):
    [rollout], _ = play(base, Changed(respond=lambda *_: answer), SOLVES)
    assert rollout.play.ending.reason == "error"
    assert rollout.play.ending.error.startswith("respond: ")


def test_numbers_of_another_library_are_rewards_too(base):
    answer = Answer([Message("user", "Go on.")], reward=numpy.float32(0.5), done=numpy.bool_(True))  # type: ignore[arg-type]
    [rollout], _ = play(base, Changed(respond=lambda *_: answer), SOLVES)
    assert json.dumps(rollout.play.ending.as_row()["turn_rewards"]) == "[0.5]"
    assert rollout.play.ending.reason == "done"


def test_data_that_are_at_fault_end_their_episode_alone(base):
    class Full(Terminal):
        def start(self, item: TaskItem) -> Any:
            if item.ordinal == 0:
                raise DataError("its files cannot be put into the sandbox", "tasks/1")
            return super().start(item)

    rollouts, _ = play(base, Full(), ["Done."], items=2)
    assert [rollout.play.ending.reason for rollout in rollouts] == ["error", "done"]
    assert rollouts[0].play.ending.error == "start: tasks/1: its files cannot be put into the sandbox"


def test_errors_of_the_machine_are_not_the_episodes(base):
    def busy(*_: Any) -> Any:
        raise BusyError("no server")

    with pytest.raises(BusyError):
        play(base, Changed(respond=busy), SOLVES)


def test_an_episode_that_does_not_close_keeps_its_verdict(base, caplog):
    def close(shell: Shell) -> None:
        shell.folder.cleanup()
        raises()

    [rollout], _ = play(base, Changed(close=close), SOLVES)
    assert (rollout.play.ending.verdict, rollout.play.ending.error) == (Verdict({"passed": True}), "")
    assert "did not close: ValueError: broken" in caplog.text


def verify_of(verify: Any, ending: Ending) -> Any:
    environment = Terminal()
    environment.verify = verify  # type: ignore[method-assign]
    return outcome_of(environment, environment.items("train", 1, 0)[0], [], ending).evidence["given"]


def outcome(given: Any) -> Outcome:
    return Outcome(1.0, True, "", {"given": given})


@pytest.mark.parametrize(
    ("verify", "given"),
    [
        (lambda item, messages: outcome("two"), "two"),
        (lambda item, messages, verdict: outcome(verdict), Verdict({"a": [1]})),
        (lambda item, messages, verdict=None: outcome(verdict), Verdict({"a": [1]})),
        (lambda item, messages, *, verdict: outcome(verdict), Verdict({"a": [1]})),
        (lambda item, messages, world: outcome(world), Verdict({"a": [1]})),
        (lambda item, messages, strict=False: outcome(strict), False),
        (lambda *arguments: outcome(len(arguments)), 2),
        (lambda *arguments, **named: outcome((len(arguments), named)), (2, {})),
    ],
)
def test_verify_is_given_the_verdict_if_it_takes_one(verify, given):
    assert verify_of(verify, Ending("done", Verdict({"a": [1]}))) == given


@pytest.mark.parametrize(
    "returned",
    [
        *(None, 1.0, {"value": 1}, Outcome(float("nan"), True, "", {}), Outcome(1.0, True, HALF, {})),
        Outcome(1.0, True, 7, {}),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_outcome_is_an_error_of_verify(returned):
    with pytest.raises((TypeError, ValueError), match=r"Outcome|finite|surrogates"):
        verify_of(lambda item, messages: returned, Ending())


def test_an_outcome_without_a_reason_has_an_empty_one():
    assert checked(Outcome(1.0, True, None, {})) == Outcome(1.0, True, "", {})  # type: ignore[arg-type]


def test_a_timeout_counts_where_the_world_still_had_its_say():
    late = Ending("timeout", Verdict({"passed": True}), "respond: it took more than 5 s")
    assert verify_of(lambda item, messages, verdict: outcome(verdict.evidence), late) == {"passed": True}
    with pytest.raises(EpisodeTimeoutError, match="more than 5 s"):
        verify_of(lambda item, messages: outcome(1), Ending("timeout", None, late.error))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)
REASONS = st.sampled_from(["done", "max_turns", "length", "error", "timeout"])
VERDICTS = st.none() | st.builds(Verdict, st.dictionaries(st.text(), JSON))
REWARDS = st.lists(st.floats(allow_nan=False)).map(tuple) | st.just((None, 0.5, None))


@given(st.builds(Ending, REASONS, VERDICTS, st.text(), REWARDS))
def test_an_ending_is_read_as_it_was_written(ending):
    schema = pa.schema([schema_of("trajectories").field(name) for name in COLUMNS])
    [row] = pa.Table.from_pylist([ending.as_row()], schema=schema).to_pylist()
    assert Ending.from_row(row) == ending


def test_rows_from_before_verdicts_say_nothing_of_their_end():
    assert Ending.from_row({"messages": []}) == Ending()


def paid(shell: Shell, messages: Sequence[Message]) -> Answer:
    turn = sum(message.role == "assistant" for message in messages)
    return Answer([Message("user", "go on")] if turn < 3 else [], reward=[0.25, None, 1][turn - 1], done=turn == 3)


def test_the_reward_of_a_turn_is_the_verifiers_score_of_it(base, store):
    environment = Changed(respond=paid)
    rollouts, _ = play(base, environment, ["a", "b", "c"])
    assert [message.content for message in rollouts[0].messages] == ["Write w0.", "a", "go on", "b", "go on", "c"]
    assert environment.log == ["done", "closed"]
    ref = stored(store, rollouts)
    assert read_dataset(store, ref)["turn_rewards"].to_pylist() == [[0.25, None, 1.0]]
    rows = [item.as_row() for item in environment.items("train", 1, 0)]
    items = publish_dataset(store, "task_items", [pa.Table.from_pylist(rows, schema=schema_of("task_items"))])
    scores = read_dataset(store, score_dataset(store, ref, items, [VerifierScorer(environment)]).output).to_pylist()
    assert [(row["turn"], row["value"], row["origin"]) for row in scores] == [
        (None, 0.0, "verifier"),
        (0, 0.25, "verifier"),
        (2, 1.0, "verifier"),
    ]


def test_scores_read_the_verdict_and_failures_are_counted(base, store):
    class Told(Changed):
        def hindsight(self, item: TaskItem, messages: Sequence[Message], verdict: Verdict | None) -> Hindsight:
            return Hindsight((f"{verdict.evidence if verdict else None}",))

    environment = Told(respond=lambda shell, messages: raises() if shell.number == 1 else Shell.respond(shell, messages))
    rollouts, _ = play(base, environment, SOLVES, items=3)
    rows = [item.as_row() for item in environment.items("train", 3, 0)]
    items = publish_dataset(store, "task_items", [pa.Table.from_pylist(rows, schema=schema_of("task_items"))])
    result = score_dataset(store, stored(store, rollouts), items, [VerifierScorer(environment)])
    assert result.filtered == {"scorer verifier/terminal: FailedEpisodeError": 1}
    assert "respond: ValueError: broken (test_endings.py" in result.details["raised"]
    scored = read_dataset(store, result.output).to_pylist()
    assert [(row["value"], row["hints"]) for row in scored] == [(1.0, ["{'passed': True}"]), (0.0, ["{'passed': False}"])]


def test_held_out_items_are_judged_by_the_recorded_verdict(base, store, tmp_path):
    (tmp_path / "world.py").write_text(
        "from clawpipe.play.environments.base import Outcome\n"
        "from clawpipe.play.environments.letters import LettersEnvironment\n"
        "class World(LettersEnvironment):\n"
        "    name = 'terminal'\n"
        "    def verify(self, item, messages, verdict):\n"
        "        return Outcome(float(verdict.evidence['passed']), verdict.evidence['passed'], '', {})\n"
    )
    environment = Changed(respond=lambda shell, messages: raises() if shell.number == 1 else Shell.respond(shell, messages))
    rollouts, _ = play(base, environment, SOLVES, items=3)
    items = [item.as_row() for item in environment.items("train", 3, 0)]
    policy = base_ref("random", resolve_base("random").digest, "pythonic", "float32")
    raised = UserErrors(None)
    spec = EnvironmentSpec(name=f"{tmp_path}/world.py:World")
    results = results_of(store, stored(store, rollouts), items, policy, spec, raised)
    assert [(row["success"], row["value"], row["error"] is None) for row in results] == [
        (True, 1.0, True),
        (None, None, False),
        (False, 0.0, True),
    ]
    assert "FailedEpisodeError: respond: ValueError: broken" in raised.details()["raised"]
