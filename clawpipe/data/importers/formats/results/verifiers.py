"""Read results of verifiers, `results.jsonl`: a prompt and its completion, with the reward and the end of the rollout.

{"example_id", "prompt": [messages], "completion": [messages], "task", "reward", "is_completed", "is_truncated", "stop_condition"}
"""

from __future__ import annotations

from dataclasses import replace

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.answered import read_completion
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.values import without

_ENDS = ("is_truncated", "is_completed", "error")


def is_verifiers(record: JsonObject) -> bool:
    has_sides = isinstance(record.get("prompt"), list | str) and isinstance(record.get("completion"), list | str)
    return has_sides and "reward" in record and any(name in record for name in ("example_id", "is_truncated"))


def read_verifiers(record: JsonObject) -> Conversation:
    """Read a rollout.

    Raises:
        RefusedError: it is not a question with its answer.
    """
    row = without(record, *_ENDS)
    kept = {name: record[name] for name in _ENDS if record.get(name) is not None}
    conversation = read_completion(row)
    return _with_end(conversation, kept)


def _with_end(conversation: Conversation, said: JsonObject) -> Conversation:
    status = "aborted" if said.get("error") else "truncated" if said.get("is_truncated") is True else conversation.status
    if status is None and said.get("is_completed") is True:
        status = "completed"
    return replace(conversation, status=status, extra={**conversation.extra, **said})
