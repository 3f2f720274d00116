"""Results of tau-bench, which are one JSON array: a trial at a task each, with the reward that its environment gave.

    {"task_id": 0, "trial": 0, "reward": 1.0, "traj": [...], "info": {"task": {"instruction": ...}, "reward_info": ...}}

The instruction is what makes two trials attempts at one task: what the user, who is simulated, says differs from trial to trial.
"""

from __future__ import annotations

from typing import Any

from clawpipe.importers.message import read_messages
from clawpipe.importers.record import Conversation, Fields, Judgement, counted, first_request, main_but_muted


def is_tau(record: dict[str, Any]) -> bool:
    return isinstance(record.get("traj"), list) and "task_id" in record


def read_tau(record: dict[str, Any]) -> Conversation:
    """A trial.

    Raises:
        RefusedError: it is no conversation.
    """
    fields = Fields(record)
    said = read_messages(fields.take("traj", list), "traj")
    reward = fields.take("reward", int, float, default=None)
    task = _inner(fields.peek("info"), "task")
    evidence = _inner(fields.peek("info"), "reward_info")
    judged = (
        ()
        if reward is None
        else (Judgement(float(reward), "verifier", reward >= 1, reason="reward of the task", evidence=evidence),)
    )
    asked = first_request(said.messages)
    instruction = task.get("instruction")
    return Conversation(
        said.messages,
        main_but_muted(said.messages, said.muted),
        instruction if isinstance(instruction, str) and instruction.strip() else asked,
        judgements=judged,
        extra=fields.rest | ({"messages": said.unknown} if said.unknown else {}),
        unread=said.unread,
        **counted(said.messages, said.failed),
    )


def _inner(value: Any, name: str) -> dict[str, Any]:
    inner = value.get(name) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}
