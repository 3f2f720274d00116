"""Models answer turns of held-out conversations anew, and a judge compares the answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.learn.evaluation.heldout.answers import answer_turns
from clawpipe.learn.evaluation.heldout.conversations import draw_conversations
from clawpipe.learn.evaluation.heldout.preference import prefer
from clawpipe.learn.evaluation.heldout.turns import reply_turn
from clawpipe.model.policy.version import base_ref
from clawpipe.play.judging.compare import Question
from tests.evaluation.test_replay import BASE, BOOKED, POLICY, calls, conversation, ids_of, stored

OTHER = base_ref("random", BASE.digest, "hermes", "bfloat16")


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


class Says:
    """In place of a pool: every turn is answered with the same message."""

    size = 1

    def __init__(self, reply: Message) -> None:
        self.reply = reply

    def run(self, job) -> list[list[int]]:
        return [ids_of(self.reply) for _ in job.request.prompts]


class LikesCalls:
    """Prefers an answer with a call."""

    def compare(self, questions: Sequence[Question]) -> list[int]:
        return [bool(one.first.tool_calls) - bool(one.second.tool_calls) for one in questions]


def test_any_main_turn_can_be_answered_anew():
    turn = reply_turn(conversation("a", *BOOKED))
    assert turn is not None
    assert (turn.place, turn.reply.content) in [(1, ""), (3, "Booked.")]
    assert reply_turn(conversation("a", Message("user", "hi"))) is None


def test_answers_are_compared_turn_by_turn(store):
    rows = [conversation(f"c{number}", Message("user", f"{number}?"), *BOOKED[1:]) for number in range(4)]
    drawn = draw_conversations(store, [stored(store, rows)], [], "success", 5000, 10, {}, measure="judged")
    held = drawn.extra("conversations")
    calling, talking = (
        answer_turns(store, Says(reply), held, policy)  # pyright: ignore[reportArgumentType]
        for reply, policy in ((calls('{"day": "Monday", "seats": 4}'), POLICY), (Message("assistant", "No."), OTHER))
    )
    answered = read_dataset(store, talking.dataset).to_pylist()
    assert [row["trajectory_id"] for row in answered] == read_dataset(store, held)["trajectory_id"].to_pylist()
    assert {row["messages"][-1]["content"] for row in answered} == {"No."}
    assert {len(row["messages"]) for row in answered} <= {2, 4}
    won, lost, tied = (
        prefer(store, held, *sides, POLICY, LikesCalls()) for sides in ((calling, talking), (talking, calling), (talking, talking))
    )
    assert [read_dataset(store, one.dataset)["value"].to_pylist() for one in (won, lost, tied)] == [[1.0] * 4, [0.0] * 4, [0.5] * 4]
    assert [one.details["success"] for one in (won, lost, tied)] == [4, 0, 0]
    assert [one.details["ties"] for one in (won, lost, tied)] == [0, 0, 4]
