"""What a user's environment has made: its items, its answers to a turn, verdict and hindsight, checked before they are used.

What is wrong is said here, where it is known who made it. Later it would end a night, or be stored and never be scored.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from itertools import islice
from typing import Any, get_args

from clawpipe.core.conversation.messages import Message, Role, ToolCall
from clawpipe.errors import ConfigError, DataError
from clawpipe.play.environments.base import Answer, Environment, Hindsight, TaskItem, Verdict
from clawpipe.play.environments.ending import written

_ROLES = get_args(Role)
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")  # as the contract of trajectories has it
_TEXTS = ("item_id", "identity", "environment", "kind", "split", "slice", "truth")  # of an item
_FIX = "see docs/environments.md, your own in one file"


def items_of(environment: Environment, split: str, count: int, seed: int) -> list[TaskItem]:
    """Return an environment's first `count` items of a split; it may return any iterable of them, also one without an end.

    Raises:
        ConfigError: one of them is no item, or not one of this environment and split.
        DataError: there are fewer.
    """
    made: Any = environment.items(split, count, seed)
    if not isinstance(made, Iterable):
        raise ConfigError(f"its items returns {made!r:.80}, not a list of items", environment.name, _FIX)
    items = list(islice(made, count))
    for place, item in enumerate(items):
        if why := _why_not(item, environment.name, split):
            raise ConfigError(f"its {split} item number {place}: {why}", environment.name, _FIX)
    if len(items) < count:
        raise DataError(f"{count} {split} items wanted, it has {len(items)}", environment.name, "ask for fewer items")
    return items


def answer_of(said: Any) -> Answer:
    """Return what `respond` has returned as an answer.

    Raises:
        TypeError, ValueError: it is none, or UTF-8 cannot express it.
    """
    answer = said if isinstance(said, Answer) else Answer(said if said is not None else (), done=said is None)
    messages: Any = answer.messages
    if not isinstance(messages, list | tuple) or not all(isinstance(message, Message) for message in messages):
        raise TypeError(f"respond returns a list of messages, an Answer or None, not {said!r:.80}")
    for message in answer.messages:
        _require_message(message)
    if answer.reward is not None and not math.isfinite(answer.reward):
        raise ValueError(f"the reward of a turn is a finite number, not {answer.reward}")
    reward = float(answer.reward) if answer.reward is not None else None  # of another library's numbers, too
    return Answer(answer.messages, reward, bool(answer.done))


def verdict_of(said: Any) -> Verdict | None:
    """Return what `finish` has returned as a verdict; None if it is None.

    Raises:
        TypeError, ValueError: it is none, or no JSON.
    """
    if said is not None and not isinstance(said, Verdict):
        raise TypeError(f"finish returns a Verdict or None, not {said!r:.80}")
    return Verdict(json.loads(written(said))) if said is not None else None  # as it will be read, a tuple as a list


def hindsight_of(said: Any) -> Hindsight | None:
    """Return what `hindsight` has returned; None if it is None.

    Raises:
        TypeError, ValueError: it is none, or UTF-8 cannot express it.
    """
    if said is None:
        return None
    if not isinstance(said, Hindsight):
        raise TypeError(f"hindsight returns a Hindsight or None, not {said!r:.80}")
    hints: Any = said.hints
    if not isinstance(hints, list | tuple) or not all(isinstance(hint, str) for hint in hints):  # a text alone is its letters
        raise TypeError(f"the hints of a Hindsight are a tuple of texts, not {hints!r:.80}")
    shown: Any = said.demonstration
    if not isinstance(shown, list | tuple) or not all(isinstance(message, Message) for message in shown):
        raise TypeError(f"the demonstration of a Hindsight is a tuple of messages, not {shown!r:.80}")
    for message in said.demonstration:
        _require_message(message)
    "".join(said.hints).encode()
    return said


def _why_not(item: Any, name: str, split: str) -> str:
    """Return why something is no item of an environment and a split; "" if it is one."""
    if not isinstance(item, TaskItem):
        return f"{item!r:.80} is no TaskItem"
    if wrong := [field for field in _TEXTS if not isinstance(getattr(item, field), str)]:
        return f"its {wrong[0]} is no text"
    if not _ID.fullmatch(item.item_id):
        return f"its item_id is {item.item_id!r:.80}, and may have letters, digits and . _ : - alone, up to 128"
    if not item.identity:
        return "its identity is empty"
    if item.environment != name:
        return f"its environment is {item.environment!r}, not {name!r}: nothing would score it"
    if item.split != split:
        return f"its split is {item.split!r}"
    return _not_stored(item)


def _not_stored(item: TaskItem) -> str:
    """Return why an item cannot be asked or stored; "" if it can."""
    messages: Any = item.messages
    if not messages or not isinstance(messages, list | tuple) or not all(isinstance(one, Message) for one in messages):
        return "its messages are no Messages"
    try:
        for message in item.messages:
            _require_message(message)
        json.dumps(item.as_row(), ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def _require_message(message: Message) -> None:
    """Check a message of a user's code.

    Raises:
        TypeError, ValueError: a part of it is of another type, it has another role, or UTF-8 cannot express it.
    """
    if not isinstance(message.content, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the content of a message is a text, not {message.content!r:.80}")
    if message.role not in _ROLES:
        raise ValueError(f"the role of a message is one of {', '.join(_ROLES)}, not {message.role!r:.80}")
    calls: Any = message.tool_calls
    if not all(isinstance(call, ToolCall) for call in calls):
        raise TypeError(f"the calls of a message are ToolCalls, not {calls!r:.80}")
    words = (text for call in message.tool_calls for text in (call.id, call.name, call.arguments))
    texts: list[Any] = [text for text in (message.tool_call_id, message.name, *words) if text is not None]
    if wrong := [text for text in texts if not isinstance(text, str)]:
        raise TypeError(f"ids, names and arguments of a message are texts, not {wrong[0]!r:.80}")
    for text in (message.content, *texts):
        text.encode()  # UTF-8 cannot express half a surrogate pair, so it could be neither shown nor stored
