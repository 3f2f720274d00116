"""The formats that are known: how a record of each is told, and what reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from clawpipe.importers.alpaca import is_alpaca, read_alpaca
from clawpipe.importers.atropos import is_atropos, read_atropos
from clawpipe.importers.chat import is_chat, read_chat
from clawpipe.importers.hermes import is_hermes, is_session, read_hermes, read_session
from clawpipe.importers.huggingface import is_completion, is_preference, is_prompt, read_completion, read_preference, read_prompt
from clawpipe.importers.openclaw import JudgeRecord, TurnRecord, is_judge, is_turn, read_judge, read_turn
from clawpipe.importers.own import is_own, read_own
from clawpipe.importers.record import Conversation, Preference, Prompt

Part = Conversation | Preference | Prompt | TurnRecord | JudgeRecord


@dataclass(frozen=True)
class Format:
    """One format."""

    name: str
    fits: Callable[[dict[str, Any]], bool]
    read: Callable[[dict[str, Any]], Iterable[Part]]


def _alone(read: Callable[[dict[str, Any]], Part]) -> Callable[[dict[str, Any]], Iterable[Part]]:
    return lambda record: (read(record),)


FORMATS: dict[str, Format] = {  # asked in this order
    known.name: known
    for known in (
        Format("openclaw-turn", is_turn, _alone(read_turn)),
        Format("openclaw-judge", is_judge, _alone(read_judge)),
        Format("clawpipe", is_own, _alone(read_own)),
        Format("atropos", is_atropos, read_atropos),
        Format("hf-preference", is_preference, _alone(read_preference)),
        Format("hermes", is_hermes, _alone(read_hermes)),
        Format("hermes-session", is_session, _alone(read_session)),
        Format("chat", is_chat, read_chat),
        Format("alpaca", is_alpaca, _alone(read_alpaca)),
        Format("hf-completion", is_completion, _alone(read_completion)),
        Format("hf-prompt", is_prompt, _alone(read_prompt)),
    )
}
FAMILIES: dict[str, tuple[str, ...]] = {  # names for several of them
    "openclaw": ("openclaw-turn", "openclaw-judge"),
    "hf": ("hf-preference", "hermes", "chat", "alpaca", "hf-completion", "hf-prompt"),
}
