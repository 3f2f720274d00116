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
from typing import TYPE_CHECKING, TypedDict

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


class TextPair(TypedDict):
    """A preference pair rendered into token ids."""

    prompt_ids: list[int]
    chosen_ids: list[int]
    rejected_ids: list[int]
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
    """Return a row of `preference_pairs` as token ids, or why it cannot be rendered.

    A side is exactly one assistant turn, because TRL's trainer takes everything after the prompt as the policy's words.
    """
    if row["weight"] is None or not math.isfinite(row["weight"]):
        return "not_finite"
    prompt, *sides = (tuple(map(Message.from_dict, row[part] or ())) for part in ("prompt", "chosen", "rejected"))
    for side in sides:
        if sum(message.role == "assistant" for message in side) > 1:
            return "more_than_one_assistant_turn_as_text"
        if not side or side[0].role != "assistant":
            return "no_assistant_turn_after_the_prompt"
        # Of a malformed call nobody knows what the model wrote.
        if any(call.malformed or parsed_object(call.arguments) is None for call in side[0].tool_calls):
            return "calls_cannot_be_written"
    renderer, shown = opening_of(row["tools"], prompt, renderer_of, preamble)
    before = [*shown, *prompt]
    try:
        ids = renderer.prompt(before)
        chosen, rejected = (_turn(renderer, before, side[0], len(ids)) for side in sides)
    except (ValueError, TypeError, AttributeError):  # a name that the format cannot write
        return "calls_cannot_be_written"
    return {"prompt_ids": ids, "chosen_ids": chosen, "rejected_ids": rejected, "weight": row["weight"]}


def _turn(renderer: Renderer, before: Sequence[Message], turn: Message, start: int) -> list[int]:
    """Return the ids of the policy's turn with its end marker, which follow the `start` ids of the context."""
    ids, mask = renderer.render_with_mask([*before, turn])
    return [token for token, sampled in zip(ids[start:], mask[start:], strict=True) if sampled]
