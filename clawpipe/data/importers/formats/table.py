"""The table of formats: how to recognise a record of each, and the function that reads it."""

from __future__ import annotations

from clawpipe.data.importers.formats.answered import is_completion, is_prompt, read_completion, read_prompt
from clawpipe.data.importers.formats.atropos import is_atropos, read_atropos
from clawpipe.data.importers.formats.capture import FORMAT as CAPTURE
from clawpipe.data.importers.formats.capture import is_capture, read_capture
from clawpipe.data.importers.formats.chat import is_chat, read_chat
from clawpipe.data.importers.formats.claude_code import is_claude_code, join_claude_code
from clawpipe.data.importers.formats.codex import is_codex, join_codex
from clawpipe.data.importers.formats.format import Format, Part, alone, guarded
from clawpipe.data.importers.formats.hermes import (
    is_hermes,
    is_said,
    is_session,
    is_sharegpt,
    is_template_text,
    is_transcript,
    join_transcript,
    read_hermes,
    read_session,
)
from clawpipe.data.importers.formats.huggingface import is_alpaca, is_preference, read_alpaca, read_preference
from clawpipe.data.importers.formats.native import is_native, read_native
from clawpipe.data.importers.formats.openclaw import is_judge, is_turn, read_judge, read_turn
from clawpipe.data.importers.formats.programs import AGENTS, CHATS, FRAMEWORKS, LINES, RESULTS, TAU2
from clawpipe.data.importers.formats.responses import is_conversation, is_responses, read_conversation, read_responses
from clawpipe.data.importers.formats.telemetry import is_telemetry, read_telemetry
from clawpipe.data.importers.formats.traces.formats import TRACES

__all__ = ["CAPTURE", "FAMILIES", "FORMATS", "Format", "Part"]

FORMATS: dict[str, Format] = {  # tried in this order
    known.name: known
    for known in (
        Format(CAPTURE, is_capture, read_line=read_capture, has_sessions=True),
        Format("openclaw-turn", is_turn, alone(read_turn), has_sessions=True),
        Format("openclaw-judge", is_judge, alone(read_judge)),
        Format("clawpipe", is_native, alone(read_native)),
        Format("atropos", is_atropos, read_atropos),
        Format("hf-preference", is_preference, alone(read_preference)),
        Format("template-text", is_template_text, alone(read_hermes)),
        Format("hermes", is_hermes, alone(read_hermes)),
        Format("sharegpt", is_sharegpt, alone(read_hermes)),
        Format("hermes-session", is_session, alone(read_session), has_sessions=True),
        *map(guarded, (TAU2, *CHATS, LINES[0], *FRAMEWORKS, *TRACES, *AGENTS, *RESULTS)),
        Format("chat", is_chat, read_chat, has_sessions=True),
        Format("claude-code", is_claude_code, join=join_claude_code, has_sessions=True),
        Format("codex", is_codex, join=join_codex, has_sessions=True),
        *map(guarded, LINES[1:]),
        Format("hermes-transcript", is_transcript, join=join_transcript, is_said=is_said, has_sessions=True),
        Format("responses", is_responses, read_responses, has_sessions=True),
        Format("responses-items", is_conversation, read_conversation, has_sessions=True),
        Format("telemetry", is_telemetry, read_telemetry, has_sessions=True),
        Format("alpaca", is_alpaca, alone(read_alpaca)),
        Format("hf-completion", is_completion, alone(read_completion)),
        Format("hf-prompt", is_prompt, alone(read_prompt)),
    )
}
FAMILIES: dict[str, tuple[str, ...]] = {  # names for several of them, perhaps also of one
    "openclaw": ("openclaw-turn", "openclaw-judge", "openclaw-session"),
    "hermes": ("template-text", "hermes", "sharegpt"),
    "hf": ("hf-preference", "template-text", "hermes", "sharegpt", "chat", "alpaca", "hf-completion", "hf-prompt"),
}
