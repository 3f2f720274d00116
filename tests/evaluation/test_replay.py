"""Tool calls of held-out conversations that a policy makes anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clawpipe.core.config.night import Runtime
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.learn.evaluation.heldout.conversations import draw_conversations
from clawpipe.learn.evaluation.heldout.replay import replay_calls
from clawpipe.learn.evaluation.heldout.turns import call_turn
from clawpipe.model.engines.base import Sampling
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.spec import policy_spec
from clawpipe.model.policy.version import base_ref
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.workers.pool import WorkerPool
from clawpipe.play.workers.request import AnswerRequest, Job

Row = dict[str, Any]
BASE = resolve_base("random")
POLICY = base_ref("random", BASE.digest, "hermes", "float32")
TOOLS = [ToolSpec("book", "Books a room.", {"day": "string", "seats": "integer"})]
RENDERER = Renderer(load_tokenizer(BASE.path), "hermes", TOOLS)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def calls(*arguments: str, name: str = "book") -> Message:
    return Message("assistant", "", tuple(ToolCall(f"c{place}", name, text) for place, text in enumerate(arguments)))


def conversation(name: str, *said: Message, kinds: list[str] | None = None) -> Row:
    """A row of text, rendered as the step `render` does."""
    ids, mask = RENDERER.render_with_mask(said)
    return {
        "trajectory_id": name,
        "item_id": name,
        "session_id": name,
        "environment": "imported",
        "split": "train",
        "source": "imported",
        "messages": [message.as_dict() for message in said],
        "tools": json.dumps([tool.as_function() for tool in TOOLS]),
        "kinds": kinds,
        "tokens": "none",
        "rendered_ids": ids,
        "rendered_mask": mask,
    }


BOOKED = (
    Message("user", "Book a room on Monday for 4."),
    calls('{"day": "Monday", "seats": 4}'),
    Message("tool", "ok", tool_call_id="c0"),
    Message("assistant", "Booked."),
)


class Repeats:
    """In place of a pool: each conversation is answered with a given message."""

    size = 1

    def __init__(self, replies: dict[str, Message], rows: list[Row]) -> None:
        self._replies = {tuple(call_turn(row).prompt): replies[row["trajectory_id"]] for row in rows}  # pyright: ignore[reportOptionalMemberAccess]

    def run(self, job: Job) -> list[list[int]]:
        assert isinstance(job.request, AnswerRequest)
        found = [self._replies[tuple(prompt)] for prompt in job.request.prompts]
        return [ids_of(message) for message in found]


def ids_of(message: Message) -> list[int]:
    """The tokens that a policy samples to say this."""
    ids, mask = RENDERER.render_with_mask([Message("user", "?"), message])
    return [token for token, own in zip(ids, mask, strict=True) if own]


def stored(store: Store, rows: list[Row]):
    return publish_dataset(store, "trajectories", [pa.Table.from_pylist(rows, schema_of("trajectories"))])


def test_a_turn_begins_where_the_recorded_call_does():
    turn = call_turn(conversation("a", *BOOKED))
    assert turn is not None
    ids = conversation("a", *BOOKED)["rendered_ids"]
    assert list(turn.prompt) == RENDERER.prompt(BOOKED[:1])
    assert ids[: len(turn.prompt) + turn.length] == [*RENDERER.prompt(BOOKED[:1]), *ids_of(BOOKED[1])]
    assert turn.expected == [{"name": "book", "arguments": {"day": "Monday", "seats": 4}}]


@pytest.mark.parametrize(
    "said",
    [
        (Message("user", "hi"), Message("assistant", "hello")),
        (Message("user", "hi"), Message("assistant", "", (ToolCall("c", "book", "{day", malformed=True),))),
    ],
)
def test_a_conversation_without_a_whole_call_stands_for_no_turn(said):
    assert call_turn(conversation("a", *said)) is None


def test_calls_of_side_turns_do_not_count():
    row = conversation("a", *BOOKED, kinds=["side", "main"])
    row["rendered_mask"] = [
        own and place > len(call_turn(conversation("a", *BOOKED)).prompt) + 40  # pyright: ignore[reportOptionalMemberAccess]
        for place, own in enumerate(row["rendered_mask"])
    ]
    assert call_turn(row) is None


def test_equal_calls_count_and_no_others(store):
    replies = {
        "same": calls('{"seats": 4, "day": "Monday"}'),
        "argument": calls('{"day": "Monday", "seats": 5}'),
        "name": calls('{"day": "Monday", "seats": 4}', name="cancel"),
        "twice": calls('{"day": "Monday", "seats": 4}', '{"day": "Monday", "seats": 4}'),
        "words": Message("assistant", "Booked."),
    }
    rows = [conversation(name, Message("user", f"{name}?"), *BOOKED[1:]) for name in replies]
    result = replay_calls(store, Repeats(replies, rows), stored(store, rows), POLICY)  # pyright: ignore[reportArgumentType]
    found = {row["item_id"]: row for row in read_dataset(store, result.dataset).to_pylist()}
    assert {name: row["success"] for name, row in found.items()} == {name: name == "same" for name in replies}
    assert {row["slice"] for row in found.values()} == {"book"}
    assert (result.details["success"], result.details["items"]) == (1, 5)


def test_only_conversations_with_a_call_are_drawn(store):
    rows = [conversation("a", *BOOKED), conversation("b", Message("user", "hi"), Message("assistant", "hello"))]
    drawn = draw_conversations(store, [stored(store, rows)], [], "any", 5000, 10, {}, measure="tool calls")
    assert read_dataset(store, drawn.dataset, ["item_id"])["item_id"].to_pylist() == ["a"]
    assert drawn.filtered == {"no tool call": 1}


def test_a_worker_answers_with_the_likeliest_tokens(store, quick_children, tmp_path_factory):
    prompts = [RENDERER.prompt([Message("user", text)]) for text in ("hi", "Book a room, please.", "no")]
    request = AnswerRequest(policy=policy_spec(store, POLICY), prompts=prompts, max_new_tokens=6, stop_ids=RENDERER.stop_ids)
    with WorkerPool(Runtime(device="cpu", workers=1), tmp_path_factory.mktemp("logs")) as pool:
        answers = pool.run(Job(request=request))
    engine = EmbeddedEngine(BASE.path, None)
    for prompt, answer in zip(prompts, answers, strict=True):
        alone = engine.begin([prompt]).sample({0: 0}, Sampling(0.0, 6, RENDERER.stop_ids))[0]
        assert answer == alone.ids
