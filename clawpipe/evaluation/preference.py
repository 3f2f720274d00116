"""Let policies answer turns of held-out conversations anew, and let a judge say whose answer is better.

A conversation stands for one of its main turns, which its hash chooses. Each model answers it from exactly the tokens before it,
with the likeliest ones (greedy). The candidate's answer is compared with the incumbent's, and so is the base's where it is not the
incumbent.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from clawpipe.contracts.schema import conformed, schema_of
from clawpipe.evaluation.likelihood import publish_results
from clawpipe.evaluation.replay import answer
from clawpipe.evaluation.turns import Turn, reply_turn
from clawpipe.json_types import Row
from clawpipe.judging.base import Scorer
from clawpipe.judging.compare import Compares, Question, preferences
from clawpipe.messages import Message
from clawpipe.policy.spec import policy_spec
from clawpipe.policy.vocabulary import load_tokenizer
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import publish_dataset, read_dataset
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.training.data.text_rows import renderers
from clawpipe.workers.pool import WorkerPool

_KEPT = ("trajectory_id", "item_id", "session_id", "user_id", "environment", "split", "source", "tools")


def answer_turns(store: Store, pool: WorkerPool, conversations: DatasetRef, policy: ModelRef) -> StepResult:
    """Let a policy answer one turn of each conversation anew, in at most as many tokens as the longest recorded turn has.

    Args:
        conversations: drawn held-out trajectories, each with a turn to answer.

    Returns:
        output: `trajectories` of text in the conversations' order: what was said before the turn, and the policy's answer.
    """
    spec = policy_spec(store, policy)
    renderer_of = renderers(load_tokenizer(Path(spec.base)), spec.calls, ())
    turns = _turns(store, conversations)
    longest = max(turn.length for turn in turns.values())
    replies = answer(pool, spec, list(turns.values()), renderer_of("[]").stop_ids, longest)
    answers = {name: renderer_of(turn.tools).parse(replies[name], 0) for name, turn in turns.items()}
    rows = [_answered(row, turns[row["trajectory_id"]], answers[row["trajectory_id"]]) for row in _rows(store, conversations)]
    table = pa.Table.from_pylist(rows, schema=schema_of("trajectories"))
    output = publish_dataset(store, "trajectories", [table], parents=[conversations.digest, policy.digest])
    lengths = sum(map(len, replies.values())) / max(len(replies), 1)
    return StepResult(output=output, rows_in=len(rows), rows_out=len(rows), details={"reply_tokens": lengths})


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


def _turns(store: Store, conversations: DatasetRef) -> dict[str, Turn]:
    return {turn.name: turn for row in read_dataset(store, conversations).to_pylist() if (turn := reply_turn(row))}


def _answered(row: Mapping, turn: Turn, reply: Message) -> Row:
    messages = [*row["messages"][: turn.place], reply.as_dict()]
    replies = sum(message["role"] == "assistant" for message in messages)
    return {name: row[name] for name in _KEPT} | {"messages": messages, "kinds": ["main"] * replies, "tokens": "none"}


def _question(left: Row, right: Row) -> Question:
    messages = [Message.from_dict(message) for message in left["messages"]]
    other = Message.from_dict(right["messages"][-1])
    return Question(tuple(messages[:-1]), messages[-1], other, left["tools"] or "[]", left["trajectory_id"])
