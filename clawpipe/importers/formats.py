"""The table of formats: how to recognise a record of each, and the function that reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from clawpipe.importers.answered import is_completion, is_prompt, read_completion, read_prompt
from clawpipe.importers.atropos import is_atropos, read_atropos
from clawpipe.importers.capture import FORMAT as CAPTURE
from clawpipe.importers.capture import Captured, is_capture, read_capture
from clawpipe.importers.chat import is_chat, read_chat
from clawpipe.importers.claude_code import is_claude_code, join_claude_code
from clawpipe.importers.codex import is_codex, join_codex
from clawpipe.importers.hermes import is_hermes, is_session, is_transcript, join_transcript, read_hermes, read_session
from clawpipe.importers.huggingface import is_alpaca, is_preference, read_alpaca, read_preference
from clawpipe.importers.langfuse import is_langfuse, read_langfuse
from clawpipe.importers.native import is_native, read_native
from clawpipe.importers.openclaw import JudgeRecord, TurnRecord, is_judge, is_turn, read_judge, read_turn
from clawpipe.importers.record import Conversation, Preference, Prompt
from clawpipe.importers.responses import is_responses, read_responses
from clawpipe.importers.sources.lines import Line
from clawpipe.importers.swe_agent import is_swe_agent, read_swe_agent
from clawpipe.importers.tau import is_tau, is_tau2, read_tau, read_tau2
from clawpipe.importers.telemetry import is_telemetry, read_telemetry
from clawpipe.json_types import JsonObject

Part = Conversation | Preference | Prompt | TurnRecord | JudgeRecord | Captured


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes:
        fits: tells whether a record, the object on a line, has the format.
        read: reads one record; absent if a conversation spans several lines.
        read_line: reads one line, whose bytes count, instead of its record.
        join: reads all records of a file together, given the session that its name says; absent if each record stands alone.
        has_sessions: whether its records may name a session.
    """

    name: str
    fits: Callable[[JsonObject], bool]
    read: Callable[[JsonObject], Iterable[Part]] | None = None
    read_line: Callable[[Line], Part] | None = None
    join: Callable[[Sequence[JsonObject], str], Iterable[Conversation]] | None = None
    has_sessions: bool = False


def _alone(read: Callable[[JsonObject], Part]) -> Callable[[JsonObject], Iterable[Part]]:
    return lambda record: (read(record),)


FORMATS: dict[str, Format] = {  # tried in this order
    known.name: known
    for known in (
        Format(CAPTURE, is_capture, read_line=read_capture, has_sessions=True),
        Format("openclaw-turn", is_turn, _alone(read_turn), has_sessions=True),
        Format("openclaw-judge", is_judge, _alone(read_judge)),
        Format("clawpipe", is_native, _alone(read_native)),
        Format("atropos", is_atropos, read_atropos),
        Format("hf-preference", is_preference, _alone(read_preference)),
        Format("hermes", is_hermes, _alone(read_hermes)),
        Format("hermes-session", is_session, _alone(read_session), has_sessions=True),
        Format("tau2-bench", is_tau2, read_tau2, has_sessions=True),
        Format("chat", is_chat, read_chat, has_sessions=True),
        Format("claude-code", is_claude_code, join=join_claude_code, has_sessions=True),
        Format("codex", is_codex, join=join_codex, has_sessions=True),
        Format("hermes-transcript", is_transcript, join=join_transcript, has_sessions=True),
        Format("langfuse", is_langfuse, read_langfuse, has_sessions=True),
        Format("tau-bench", is_tau, _alone(read_tau)),
        Format("swe-agent", is_swe_agent, _alone(read_swe_agent)),
        Format("responses", is_responses, read_responses, has_sessions=True),
        Format("telemetry", is_telemetry, read_telemetry, has_sessions=True),
        Format("alpaca", is_alpaca, _alone(read_alpaca)),
        Format("hf-completion", is_completion, _alone(read_completion)),
        Format("hf-prompt", is_prompt, _alone(read_prompt)),
    )
}
FAMILIES: dict[str, tuple[str, ...]] = {  # names for several of them
    "openclaw": ("openclaw-turn", "openclaw-judge"),
    "hf": ("hf-preference", "hermes", "chat", "alpaca", "hf-completion", "hf-prompt"),
}
