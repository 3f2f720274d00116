"""Let a policy make the tool calls of held-out conversations anew, from what was said before them, and compare with those recorded.

A conversation stands for one of its turns with calls, which its hash chooses. The reply is the likeliest one (greedy).
"""

from __future__ import annotations

from pathlib import Path

from clawpipe.core.basics.json_types import Row
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.learn.evaluation.heldout.answers import answer
from clawpipe.learn.evaluation.heldout.results import publish_results
from clawpipe.learn.evaluation.heldout.turns import Turn, call_turn
from clawpipe.model.policy.spec import policy_spec
from clawpipe.model.policy.text import renderers
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.environments.checks import tool_call
from clawpipe.play.workers.pool import WorkerPool


def replay_calls(store: Store, pool: WorkerPool, conversations: DatasetRef, policy: ModelRef) -> StepResult:
    """Compute for each conversation whether the policy makes the recorded calls: these tools with these arguments, and no others.

    Args:
        conversations: drawn held-out trajectories, each with a turn to replay.

    Returns:
        output: `eval_results`, with the first tool's name as the slice.
    """
    spec = policy_spec(store, policy)
    renderer_of = renderers(load_tokenizer(Path(spec.base)), spec.tool_call_format, ())
    turns = [turn for row in read_dataset(store, conversations).to_pylist() if (turn := call_turn(row))]
    replies = answer(pool, spec, turns, renderer_of("[]").stop_ids)
    results = [_result(policy, turn, renderer_of(turn.tools).parse(replies[turn.name], 0)) for turn in turns]
    return publish_results(store, results, conversations, policy)


def _result(policy: ModelRef, turn: Turn, reply: Message) -> Row:
    right = tool_call(reply, turn.expected)
    names = {"policy_version": policy.policy_version, "item_id": turn.name, "trajectory_id": turn.name}
    return names | {"slice": turn.calls[0].name, "success": right, "value": float(right), "error": None, "seed": 0}
