"""Let policies answer turns of held-out conversations anew.

A conversation stands for one of its main turns, which its hash chooses. Each model answers it from exactly the tokens before it,
with the likeliest ones (greedy).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from clawpipe.core.basics.json_types import Row
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.learn.evaluation.heldout.turns import Turn, reply_turn
from clawpipe.model.policy.spec import PolicySpec, policy_spec
from clawpipe.model.policy.text import renderers
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.workers.pool import WorkerPool
from clawpipe.play.workers.request import AnswerRequest, Job

_TOGETHER = 16  # histories that are answered as one batch
_SPARE = 16  # tokens that a reply may be longer than the longest recorded one of its batch
_KEPT = ("trajectory_id", "item_id", "session_id", "user_id", "environment", "split", "source", "tools")


def answer_turns(store: Store, pool: WorkerPool, conversations: DatasetRef, policy: ModelRef) -> StepResult:
    """Let a policy answer one turn of each conversation anew, in at most as many tokens as the longest recorded turn has.

    Args:
        conversations: drawn held-out trajectories, each with a turn to answer.

    Returns:
        output: `trajectories` of text in the conversations' order: what was said before the turn, and the policy's answer.
    """
    spec = policy_spec(store, policy)
    renderer_of = renderers(load_tokenizer(Path(spec.base)), spec.tool_call_format, ())
    turns = _turns(store, conversations)
    said = conformed(read_dataset(store, conversations), schema_of("trajectories")).to_pylist()
    longest = max(turn.length for turn in turns.values())
    replies = answer(pool, spec, list(turns.values()), renderer_of("[]").stop_ids, longest)
    answers = {name: renderer_of(turn.tools).parse(replies[name], 0) for name, turn in turns.items()}
    rows = [_answered(row, turns[row["trajectory_id"]], answers[row["trajectory_id"]]) for row in said]
    table = pa.Table.from_pylist(rows, schema=schema_of("trajectories"))
    output = publish_dataset(store, "trajectories", [table], parents=[conversations.digest, policy.digest])
    lengths = sum(map(len, replies.values())) / max(len(replies), 1)
    return StepResult(output=output, rows_in=len(rows), rows_out=len(rows), details={"reply_tokens": lengths})


def _turns(store: Store, conversations: DatasetRef) -> dict[str, Turn]:
    return {turn.name: turn for row in read_dataset(store, conversations).to_pylist() if (turn := reply_turn(row))}


def _answered(row: Row, turn: Turn, reply: Message) -> Row:
    messages = [*row["messages"][: turn.place], reply.as_dict()]
    replies = sum(message["role"] == "assistant" for message in messages)
    return {name: row[name] for name in _KEPT} | {"messages": messages, "kinds": ["main"] * replies, "tokens": "none"}


def answer(
    pool: WorkerPool, spec: PolicySpec, turns: Sequence[Turn], ends: tuple[int, ...], max_new_tokens: int | None = None
) -> dict[str, list[int]]:
    """Return the policy's token ids for each turn. Turns of like length are answered together, whatever the number of workers.

    Args:
        ends: tokens any of which ends a turn.
        max_new_tokens: of an answer; None: a few more than the longest recorded turn that is answered with it.
    """
    ordered = sorted(turns, key=lambda turn: (len(turn.prompt), turn.name))
    batches = [ordered[start : start + _TOGETHER] for start in range(0, len(ordered), _TOGETHER)]
    with ThreadPoolExecutor(pool.size) as threads:
        found = list(threads.map(lambda batch: pool.run(Job(request=_request(spec, batch, ends, max_new_tokens))), batches))
    return {turn.name: ids for batch, answers in zip(batches, found, strict=True) for turn, ids in zip(batch, answers, strict=True)}


def _request(spec: PolicySpec, batch: Sequence[Turn], ends: tuple[int, ...], max_new_tokens: int | None) -> AnswerRequest:
    longest = max_new_tokens or max(turn.length for turn in batch) + _SPARE
    return AnswerRequest(policy=spec, prompts=[list(turn.prompt) for turn in batch], max_new_tokens=longest, stop_ids=ends)
