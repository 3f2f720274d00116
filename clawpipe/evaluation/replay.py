"""Let a policy make the tool calls of held-out conversations anew, from what was said before them, and compare with those recorded.

A conversation stands for one of its turns with calls, which its hash chooses. The reply is the likeliest one (greedy).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from clawpipe.environments.checks import tool_call
from clawpipe.evaluation.likelihood import publish_results
from clawpipe.evaluation.turns import Turn, call_turn
from clawpipe.json_types import Row
from clawpipe.messages import Message
from clawpipe.policy.spec import PolicySpec, policy_spec
from clawpipe.policy.vocabulary import load_tokenizer
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import read_dataset
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.training.data.text_rows import renderers
from clawpipe.workers.pool import WorkerPool
from clawpipe.workers.request import AnswerRequest, Job

_TOGETHER = 16  # histories that are answered as one batch
_SPARE = 16  # tokens that a reply may be longer than the longest recorded one of its batch


def replay_calls(store: Store, pool: WorkerPool, conversations: DatasetRef, policy: ModelRef) -> StepResult:
    """Compute for each conversation whether the policy makes the recorded calls: these tools with these arguments, and no others.

    Args:
        conversations: drawn held-out trajectories, each with a turn to replay.

    Returns:
        output: `eval_results`, with the first tool's name as the slice.
    """
    spec = policy_spec(store, policy)
    renderer_of = renderers(load_tokenizer(Path(spec.base)), spec.calls, ())
    turns = [turn for row in read_dataset(store, conversations).to_pylist() if (turn := call_turn(row))]
    replies = answer(pool, spec, turns, renderer_of("[]").stop_ids)
    results = [_result(policy, turn, renderer_of(turn.tools).parse(replies[turn.name], 0)) for turn in turns]
    return publish_results(store, results, conversations, policy)


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


def _result(policy: ModelRef, turn: Turn, reply: Message) -> Row:
    right = tool_call(reply, turn.expected)
    names = {"policy_version": policy.policy_version, "item_id": turn.name, "trajectory_id": turn.name}
    return names | {"slice": turn.calls[0].name, "success": right, "value": float(right), "error": None, "seed": 0}
