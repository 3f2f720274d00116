"""Render conversations as the model's own chat template writes them: `model.tool_call_format: own`.

A template writes whole conversations, while a policy's turns are recorded as they were sampled and never rendered again. So a
conversation is put together as a rollout does it: the template's prompt up to the first turn, the turn's own ids, what the template
writes between a turn and the next one, and so on. `unfaithful` says where that differs from what the template writes in one go.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any

import jinja2
from msgspec.structs import replace

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message, ToolCall, ToolCallFormat, ToolSpec, WrittenFormat
from clawpipe.core.store.digests import sha256_json
from clawpipe.data.wire.arguments import arguments_of
from clawpipe.data.wire.thoughts import split_thought, with_thoughts, words_of
from clawpipe.errors import ClawpipeError, ConfigError, DataError
from clawpipe.model.policy.calls import codec
from clawpipe.model.policy.markers import TURN, Written, marker_reader, pattern_of, without_markers
from clawpipe.model.policy.own_template import difference, own_format
from clawpipe.model.policy.renderer import Renderer, file_digest, text_only

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_QUESTION = Message("user", "?")
_SHOWN = 120  # characters before and after a difference
_TOOL = ToolSpec("stock", "Pieces in stock.", {"item": "string"})
_CALL = ToolCall("call_1_0", "stock", '{"item": "mug"}')
_SYSTEM = Message("system", "Be brief.")
_TALK = (Message("user", "Hello."), Message("assistant", "What is it?"), Message("user", "How many mugs?"))
_CALLED = (Message("assistant", "", (_CALL,)), Message("tool", "57", tool_call_id="call_1_0", name="stock"))
_ANSWER = Message("assistant", "57.")
_THOUGHT = "This is turn {}.\n\nLet me think of one thing after the other, in several lines."


def open_renderer(tokenizer: PreTrainedTokenizerFast, tool_call_format: ToolCallFormat, tools: Sequence[ToolSpec]) -> Renderer:
    """Return the renderer of a tool-call format, or of the model's own chat template.

    Raises:
        ConfigError: the tokenizer has no end-of-turn token, or the template cannot be used; the message shows the difference.
    """
    return TemplateRenderer(tokenizer, tools) if tool_call_format == "own" else Renderer(tokenizer, tool_call_format, tools)


@lru_cache(maxsize=4)
def written_format(tokenizer: PreTrainedTokenizerFast, tool_call_format: ToolCallFormat) -> WrittenFormat:
    """Return the format in which calls are read: for `own` the one that reads what the model's chat template writes.

    Where none does, the model can use no tools, and it does not matter.
    """
    return (own_format(tokenizer) or "hermes") if tool_call_format == "own" else tool_call_format


@lru_cache(maxsize=8)
def unfaithful(tokenizer: PreTrainedTokenizerFast, with_tools: bool) -> str | None:
    """Return why the template cannot be used: calls that no format reads, or how a conversation that is put together turn by turn
    differs from what the template writes in one go. None if it can be used."""
    if with_tools and own_format(tokenizer) is None:
        return str(difference(tokenizer, "hermes"))
    try:
        renderer = TemplateRenderer(tokenizer, (_TOOL,) if with_tools else (), check=False)
        if with_tools and not renderer.describes(_TOOL):
            return "it does not describe tools"
        return renderer.differs(renderer.example()) or renderer.differs(renderer.thinking())
    except ClawpipeError as error:
        return error.what


class TemplateRenderer(Renderer):
    """Renders with the chat template of `tokenizer`, which describes `tools` in its own way.

    Args:
        check: refuse a template that is not faithful.

    Raises:
        ConfigError: the template cannot be used; the message shows the difference.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, tools: Sequence[ToolSpec], check: bool = True) -> None:
        if check and (wrong := unfaithful(tokenizer, bool(tools))):
            raise _refused(wrong)
        self._tokenizer = tokenizer
        self._codec = codec(written_format(tokenizer, "own"), tools)
        self._tools: list[Any] | None = [tool.as_function() for tool in tools] or None
        added = tokenizer.added_tokens_decoder.values()
        self._takes_thoughts = "reasoning_content" in str(tokenizer.chat_template)  # as a field of their own
        self._special = pattern_of(token.content for token in added if token.special)
        self._added = pattern_of(token.content for token in added if not token.content.isspace())
        self._template = marker_reader(tokenizer)
        self._backend = text_only(tokenizer, [token for token, kind in tokenizer.added_tokens_decoder.items() if kind.special])
        self._end = self._end_of_turn()
        self.eos_id = tokenizer.get_vocab()[self._end]
        self.stop_ids = (self.eos_id,)
        probe = self._ids(self._write(self.example(), opened=True))
        self.digest = sha256_json({"tokenizer": file_digest(self._template), "template": tokenizer.chat_template, "probe": probe})

    def example(self) -> tuple[Message, ...]:
        """Return a conversation with what follows each kind of message; without a system message if the template refuses these."""
        talk = (*_TALK, *(_CALLED if self._tools else ()), _ANSWER)
        try:
            self._write([_SYSTEM, _QUESTION])
        except DataError:
            return talk
        return (_SYSTEM, *talk)

    def thinking(self) -> tuple[Message, ...]:
        """Return the example with a thought in each turn, but for calls if the template writes no text beside these."""
        listed = list(self.example())
        for place, message in enumerate(listed):
            if self._takes_text(message):
                listed[place] = replace(message, content=with_thoughts(message.content, [_THOUGHT.format(place)]))
        return tuple(listed)

    def describes(self, tool: ToolSpec) -> bool:
        """Return whether the template writes the description of a tool."""
        return tool.description in self._write([_QUESTION]).text

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of `messages` and of the header that opens the policy's next turn."""
        return self._ids(self._write(messages, opened=True))

    def continuation(self, finish_reason: str, messages: Sequence[Message]) -> list[int]:
        """Return the ids after a sampled turn: its end (the marker only if sampling was cut off), `messages`, the next header."""
        closing = [self.eos_id] if finish_reason == "length" else []
        return [*closing, *self._ids(self._following(messages, opened=True))]

    def ids_of(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of `messages` after a question."""
        start = len(self._write([_QUESTION]).text)
        return self._ids(self._write([_QUESTION, *messages]).after(start))

    def header_place(self, ids: Sequence[int], start: int) -> int | None:
        """Return where the header begins of the turn whose text begins at `ids[start]`; None if there is no header."""
        header = self._ids(self._write([_QUESTION], opened=True).after(len(self._write([_QUESTION]).text)))
        place = start - len(header)
        return place if place >= 0 and list(ids[place:start]) == header else None

    def render_with_mask(self, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
        """Return ids [T] and loss mask [T] of a finished conversation; the mask is true on assistant turns and their end
        markers."""
        turns = [place for place, message in enumerate(messages) if message.role == "assistant"]
        if not turns:
            ids = self._ids(self._write(messages))
            return ids, [False] * len(ids)
        ids = self.prompt(messages[: turns[0]])
        mask = [False] * len(ids)
        for place, following in pairwise([*turns, len(messages)]):
            turn, rest = self._turn(messages[place]), messages[place + 1 : following]
            after = self._ids(self._following(rest, opened=following < len(messages)))
            ids += [*turn, *after]
            mask += [True] * len(turn) + [False] * len(after)
        return ids, mask

    def differs(self, messages: Sequence[Message]) -> str | None:
        """Return where `spans` and the template differ on a conversation; None if they do not."""
        made, wanted = self.render_with_mask(messages)[0], self._ids(self._write(messages))
        if made == wanted:
            return None
        own, whole = (self._template.decode(ids, skip_special_tokens=False) for ids in (made, wanted))
        place = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(own, whole, strict=False)))
        around = slice(max(place - _SHOWN, 0), place + _SHOWN)
        return f"turn by turn it is {own[around]!r}, in one go {whole[around]!r}"

    def _takes_text(self, message: Message) -> bool:
        beside = replace(message, content="Let me look.")
        return message.role == "assistant" and (not message.tool_calls or beside.content in self._written_turn(beside).text)

    def _turn(self, message: Message) -> list[int]:
        """Return the ids of an assistant turn and its end marker."""
        if any(call.malformed for call in message.tool_calls):  # which no template can be given
            return [*(token for piece in self._codec.write(message) for token in self._encode(piece)), self.eos_id]
        written = self._written_turn(message)
        if split_thought(message.content)[0] and not self._holds_thought(written.plain, message):
            raise _unreadable(f"it drops or rewrites a thought: {message.content[:_SHOWN]!r} became {written.plain[:_SHOWN]!r}")
        return self._ids(written)

    def _written_turn(self, message: Message) -> Written:
        opening, whole = self._write([_QUESTION], opened=True).text, self._write([_QUESTION, message])
        if not whole.text.startswith(opening):
            raise _unreadable(f"a turn does not begin as the prompt ends, {opening[-_SHOWN:]!r}")
        return whole.before(self._end_after(whole.text, len(opening))).after(len(opening))

    def _holds_thought(self, written: str, message: Message) -> bool:
        """Whether a turn that the template wrote has the message's thought as a thought, and its text as text."""
        thought, said = split_thought(message.content)
        found = split_thought(self._codec.parse(written.removesuffix(self._end), 0).content)
        return words_of(thought) in found[0] and said.strip() in found[1]

    def _following(self, messages: Sequence[Message], opened: bool) -> Written:
        """Return what is written after a turn's end marker: `messages`, and the next turn's header if `opened`."""
        results = [message for message in messages if message.role == "tool"]
        names = [(result.tool_call_id or f"call_0_{place}", result.name or "tool") for place, result in enumerate(results)]
        calls = tuple(ToolCall(call_id, name, json.dumps({"x": TURN})) for call_id, name in names)
        written = self._write([_QUESTION, Message("assistant", "" if calls else TURN, calls), *messages], opened, kept=TURN)
        return written.after(self._end_after(written.text, written.text.rfind(TURN)))

    def _end_after(self, text: str, place: int) -> int:
        """Return where the first end marker after `place` ends."""
        found = text.find(self._end, place)
        if found < 0:
            raise _unreadable(f"no {self._end!r} ends the turn in {text[-_SHOWN:]!r}")
        return found + len(self._end)

    def _end_of_turn(self) -> str:
        """Return the marker that the template writes after a turn's text."""
        text = self._write([_QUESTION, Message("assistant", TURN)], kept=TURN).text
        found = re.search(self._special, text[text.rfind(TURN) + 1 :]) if TURN in text else None
        if found is None:
            raise _refused(f"no special token ends a turn: {text[-_SHOWN:]!r}")
        return found[0]

    def _write(self, messages: Sequence[Message], opened: bool = False, kept: str = "") -> Written:
        """Let the template write `messages`.

        Args:
            opened: add the header of the policy's next turn.
            kept: text that is no message's and stays.

        Raises:
            DataError: the template refuses them.
        """
        spelled: list[str] = []
        given = [self._given(message, spelled, kept) for message in messages]
        try:
            text = self._tokenizer.apply_chat_template(given, tools=self._tools, add_generation_prompt=opened, tokenize=False)
        except (jinja2.TemplateError, ValueError, TypeError, KeyError, IndexError) as error:
            raise _unreadable(str(error)) from error
        return Written(str(text), tuple(spelled))

    def _given(self, message: Message, spelled: list[str], kept: str) -> JsonObject:
        """Return a message as templates take it, with what it spells like a marker taken out into `spelled`."""
        markers = self._special if message.role == "assistant" else self._added  # a turn may spell <think>

        safe = partial(without_markers, markers=markers, spelled=spelled, kept=kept)
        body: JsonObject = {"role": message.role} | safe(self._content(message))
        if message.tool_calls:
            body["tool_calls"] = [
                {
                    "id": _short_id(call.id),
                    "type": "function",
                    "function": {"name": safe(call.name), "arguments": safe(arguments_of(call))},
                }
                for call in message.tool_calls
                if not call.malformed
            ]
        if message.role == "tool":
            body |= {"tool_call_id": _short_id(message.tool_call_id or ""), "name": safe(message.name or "tool")}
        return body

    def _content(self, message: Message) -> JsonObject:
        """Return a message's text with its malformed calls, which no template takes, and its thought where that is a field."""
        malformed = tuple(call for call in message.tool_calls if call.malformed)
        text = "".join(self._codec.write(replace(message, tool_calls=malformed))) if malformed else message.content
        thought, said = split_thought(text) if self._takes_thoughts and message.role == "assistant" else ("", "")
        return {"content": said.lstrip("\n"), "reasoning_content": words_of(thought)} if thought else {"content": text}

    def _ids(self, written: Written) -> list[int]:
        """Return the ids of text with markers; those that messages spell are encoded as text."""
        return written.ids(self._template, self._backend)


def _short_id(call_id: str) -> str:
    """Return an id of nine letters and digits, as Mistral's templates want it."""
    return hashlib.sha256(call_id.encode()).hexdigest()[:9]


def _unreadable(what: str) -> DataError:
    return DataError(f"the model's chat template cannot write this conversation: {what}", "model.tool_call_format", "name a format")


def _refused(what: str) -> ConfigError:
    return ConfigError(
        f"the model's own chat template cannot be used: {what}",
        "model.tool_call_format",
        "name a format that the model was trained on: docs/models.md",
    )
