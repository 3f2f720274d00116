"""Let a judge compare two models' answers to turns of held-out conversations.

The candidate's answer is compared with the incumbent's, and so is the base's where it is not the incumbent.
"""

from __future__ import annotations

from clawpipe.core.basics.json_types import Row
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.learn.evaluation.heldout.results import publish_results
from clawpipe.play.judging.base import Scorer
from clawpipe.play.judging.compare import Compares, Question, preferences


def prefer(
    store: Store, conversations: DatasetRef, own: StepResult, other: StepResult, policy: ModelRef, judge: Scorer | Compares
) -> StepResult:
    """Compute for each conversation whether a policy's answer is preferred to another's.

    Args:
        own, other: results of `answer_turns` for the policy and for its rival.

    Returns:
        output: `eval_results`: `value` is 1 where it is preferred, 0 where the other is, and 0.5 where neither is.

    Raises:
        BusyError: the judge's server is away, or too much of what it says cannot be used.
        ConfigError: the judge cannot compare.
    """
    mine, theirs = _rows(store, own.dataset), _rows(store, other.dataset)
    values = preferences(judge, [_question(left, right) for left, right in zip(mine, theirs, strict=True)])
    names = {"policy_version": policy.policy_version, "slice": "all", "error": None, "seed": 0}
    rows = [
        names | {"item_id": row["trajectory_id"], "trajectory_id": row["trajectory_id"], "success": value == 1, "value": value}
        for row, value in zip(mine, values, strict=True)
    ]
    figures = {"ties": float(values.count(0.5)), "reply_tokens": own.details["reply_tokens"]}
    return publish_results(store, rows, conversations, policy, figures)


def _rows(store: Store, dataset: DatasetRef) -> list[Row]:
    return conformed(read_dataset(store, dataset), schema_of("trajectories")).to_pylist()


def _question(left: Row, right: Row) -> Question:
    messages = [Message.from_dict(message) for message in left["messages"]]
    other = Message.from_dict(right["messages"][-1])
    return Question(tuple(messages[:-1]), messages[-1], other, left["tools"] or "[]", left["trajectory_id"])
