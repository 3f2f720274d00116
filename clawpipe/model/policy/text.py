"""Render conversations and preference pairs that exist only as text into tokens, with a mask of the turns to learn from.

They are rendered by clawpipe.model.policy.renderer, never by a chat template, which may drop tools and calls, and would turn text
that spells a marker into one. A conversation with a system message or tools is rendered in that context; any other follows the
environment's preamble, like a rollout.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Container, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.conversation.endings import lacks_end
from clawpipe.core.conversation.messages import Message, ToolCallFormat, ToolSpec
from clawpipe.data.wire.arguments import parsed_object
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.template import open_renderer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_RENDERERS = 32  # each holds a copy of the tokenizer

Rendering = tuple[list[int], list[bool]]
RendererOf = Callable[[str | None], Renderer]  # argument: JSON of a row's tools; None: the environment's tools


class TextPair(NamedTuple):
    """A preference pair rendered into tokens: the ids of prompt and side together, and a mask of the side's own assistant turns."""

    chosen: Rendering
    rejected: Rendering
    weight: float


def renderers(tokenizer: PreTrainedTokenizerFast, tool_call_format: ToolCallFormat, tools: Sequence[ToolSpec]) -> RendererOf:
    """Return renderers by the JSON of a row's tools; None stands for the environment's `tools`."""

    @lru_cache(maxsize=_RENDERERS)
    def renderer_of(tools_json: str | None) -> Renderer:
        return open_renderer(tokenizer, tool_call_format, tools if tools_json is None else parse_tools(tools_json))

    return renderer_of


def opening_of(
    tools: str | None, messages: Sequence[Message], renderer_of: RendererOf, preamble: Sequence[Message]
) -> tuple[Renderer, Sequence[Message]]:
    """Return the messages' renderer and the preamble before them, which is empty if they bring tools or a system message."""
    if tools is not None or messages[0].role == "system":
        return renderer_of(tools or "[]"), ()
    return renderer_of(None), preamble


def render_row(row: Row, renderer_of: RendererOf, preamble: Sequence[Message]) -> tuple[Rendering, str] | str:
    """Return ids and mask of a row with the renderer's digest, or why it cannot be rendered.

    Args:
        row: row of `trajectories`, with tokens "none". One that ends with an answer that was cut off gets no end marker.
        preamble: the environment's messages.
    """
    messages = tuple(map(Message.from_dict, row["messages"]))
    renderer, before = opening_of(row["tools"], messages, renderer_of, preamble)
    try:
        ids, mask = renderer.render_with_mask([*before, *messages])
    except (ValueError, TypeError, AttributeError):  # a name that the format cannot write
        return "calls cannot be written"
    if lacks_end(row, messages):
        ids, mask = _without_end(ids, mask, renderer.stop_ids)
    kinds = row["kinds"] or ["main"] * sum(message.role == "assistant" for message in messages)
    shown = ["side"] * sum(message.role == "assistant" for message in before)
    return (ids, main_only(mask, [*shown, *kinds])), renderer.digest


def _without_end(ids: Sequence[int], mask: Sequence[bool], ends: Container[int]) -> Rendering:
    """Return ids and mask up to the last turn's words, without its end marker and what follows."""
    end = max(place for place, sampled in enumerate(mask) if sampled)
    end += ids[end] not in ends
    return list(ids[:end]), list(mask[:end])


def main_only(mask: Sequence[bool], kinds: Sequence[str]) -> list[bool]:
    """Return the mask without the turns that are not main. Each run of the mask is one turn, since headers separate turns."""
    left, kept = iter(kinds), list[bool]()
    for sampled, run in groupby(mask):
        length = sum(1 for _ in run)
        kept += [sampled and next(left) == "main"] * length
    return kept


def parse_tools(tools: str) -> list[ToolSpec]:
    """Parse a row's tools from the JSON schemas of its source; entries that are no such schema are skipped."""
    listed = json.loads(tools)
    schemas = [tool.get("function", tool) for tool in listed if isinstance(tool, dict)] if isinstance(listed, list) else []
    return [_tool(schema) for schema in schemas if isinstance(schema, dict) and isinstance(schema.get("name"), str)]


def _tool(schema: JsonObject) -> ToolSpec:
    parameters = schema.get("parameters") or schema.get("inputSchema")
    if not isinstance(parameters, dict) or not isinstance(parameters.get("properties"), dict):
        parameters = {}
    return ToolSpec(schema["name"], str(schema.get("description") or ""), {"type": "object", **parameters})


def text_pair(row: Row, renderer_of: RendererOf, preamble: Sequence[Message]) -> TextPair | str:
    """Return a row of `preference_pairs` as token ids, or why it cannot be rendered. A side begins with an assistant turn."""
    if row["weight"] is None or not math.isfinite(row["weight"]):
        return "not_finite"
    prompt, *sides = (tuple(map(Message.from_dict, row[part] or ())) for part in ("prompt", "chosen", "rejected"))
    if any(not side or side[0].role != "assistant" for side in sides):
        return "no_assistant_turn_after_the_prompt"
    # Of a malformed call nobody knows what the model wrote.
    calls = (call for side in sides for message in side for call in message.tool_calls)
    if any(call.malformed or parsed_object(call.arguments) is None for call in calls):
        return "calls_cannot_be_written"
    renderer, shown = opening_of(row["tools"], prompt, renderer_of, preamble)
    before = [*shown, *prompt]
    try:
        start = len(renderer.prompt(before))
        chosen, rejected = (_side(*renderer.render_with_mask([*before, *side]), start) for side in sides)
    except (ValueError, TypeError, AttributeError):  # a name that the format cannot write
        return "calls_cannot_be_written"
    return TextPair(chosen, rejected, row["weight"])


def _side(ids: Sequence[int], mask: Sequence[bool], start: int) -> Rendering:
    """Return ids and mask up to the last turn's end marker, without the turns before `start`, which belong to the prompt."""
    end = max(place for place, sampled in enumerate(mask) if sampled) + 1
    return list(ids[:end]), [False] * start + list(mask[start:end])
