"""Check by a round trip over generated calls whether a tool-call format reads the turns that a model's own chat template writes.

Rows are assembled by `clawpipe.model.policy.renderer`, never by the template. The round trip says which format the model was
trained on.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import jinja2

from clawpipe.core.conversation.messages import ToolCall, ToolSpec, WrittenFormat
from clawpipe.data.wire.arguments import arguments_of, neutral_arguments
from clawpipe.data.wire.thoughts import split_thought, words_of
from clawpipe.model.policy.calls import codec
from clawpipe.model.policy.formats.common import Parsed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_TOOLS = (
    ToolSpec("stock", "Pieces in stock.", {"item": "string"}),
    ToolSpec(
        "order",
        "Order something.",
        {
            "type": "object",
            "properties": {
                "items": {"type": "array", "items": {"type": "object"}},
                "note": {"type": "string"},
                "count": {"type": "integer"},
                "express": {"type": "boolean"},
            },
        },
    ),
)
_TEXTS = ("mug", 'a "b"', "it's", "two\nlines", "Grüße 漢", "7", "true", "a\\b", "<b>&</b>", "{x}")
_TURNS = 20  # of one call, and as many of two
_SHOWN = 200  # characters of what a template wrote
_QUESTION = {"role": "user", "content": "What is there?"}


class Difference(NamedTuple):
    """The first turn that the format reads wrongly.

    Attributes:
        meant: the calls that the template was given.
        written: the turn as the template wrote it, or why it refuses.
        read: what the format reads in it: calls, and text that is left beside them.
        several: whether the turn has two calls; then all turns of one call were read right.
    """

    meant: tuple[ToolCall, ...]
    written: str
    read: Parsed
    several: bool

    def __str__(self) -> str:
        text = f" beside the text {self.read.content[:_SHOWN]!r}" if self.read.content else ""
        return f"meant {_shown(self.meant)}, the template wrote {self.written[:_SHOWN]!r}, read {_shown(self.read.calls)}{text}"


def difference(tokenizer: PreTrainedTokenizerFast, format: WrittenFormat) -> Difference | None:
    """Return the first turn of the model's own template that `format` reads wrongly; None if it reads all as they were meant."""
    draws = random.Random(0)
    for number in (1, 2):
        for _ in range(_TURNS):
            meant = tuple(_call(draws, place) for place in range(number))
            try:
                written = _turn(tokenizer, meant)
                read = codec(format, _TOOLS).parse(_without_empty_thought(written), 0)
            except (jinja2.TemplateError, ValueError, TypeError, KeyError) as error:
                written, read = f"{type(error).__name__}: {error}", Parsed("", ())
            if read != ("", meant):
                return Difference(meant, written, read, number > 1)
    return None


def own_format(tokenizer: PreTrainedTokenizerFast) -> WrittenFormat | None:
    """Return the format that reads the model's own template: calls alone and in pairs, else calls alone; None if none does."""
    found = {format: difference(tokenizer, format) for format in get_args(WrittenFormat)}
    alone = [format for format, wrong in found.items() if wrong is None or wrong.several]
    return min(alone, key=lambda format: found[format] is not None, default=None)


def _call(draws: random.Random, place: int) -> ToolCall:
    text, other = draws.choices(_TEXTS, k=2)
    order = {"items": [{"name": other, "size": [1, 2.5, None]}], "note": text, "count": draws.randrange(99), "express": True}
    name, arguments = draws.choice([("stock", {"item": text}), ("order", order)])
    return ToolCall(f"call_0_{place}", name, neutral_arguments(arguments))


def _without_empty_thought(text: str) -> str:
    """Return a turn without a thought that says nothing."""
    thought, said = split_thought(text)
    return text if words_of(thought) else said


def _turn(tokenizer: PreTrainedTokenizerFast, calls: Sequence[ToolCall]) -> str:
    """Return the turn with these calls as the template writes it, without the end-of-turn marker.

    Raises:
        jinja2.TemplateError: the template refuses, or is none.
        ValueError: there is no template, or a turn does not begin with what the template asks the model to go on from.
    """
    made = [{"function": {"name": call.name, "arguments": arguments_of(call)}} for call in calls]
    numbered = [one | {"type": "function", "id": f"abcdefgh{place}"} for place, one in enumerate(made)]  # as Mistral's wants ids
    prompt = _rendered(tokenizer, [_QUESTION], add_generation_prompt=True)
    whole = _rendered(tokenizer, [_QUESTION, {"role": "assistant", "content": "", "tool_calls": numbered}])
    if not whole.startswith(prompt):
        raise ValueError(f"the turn does not go on from its prompt: {whole[-_SHOWN:]!r}")
    text = whole.removeprefix(prompt)
    ends = [place for marker in _ends(tokenizer) if (place := text.rfind(marker)) >= 0]
    return text[: min(ends, default=len(text))]


def _rendered(tokenizer: PreTrainedTokenizerFast, messages: Sequence[Any], **more: Any) -> str:
    tools: list[Any] = [tool.as_function() for tool in _TOOLS]
    return str(tokenizer.apply_chat_template(list(messages), tools=tools, tokenize=False, **more))


def _ends(tokenizer: PreTrainedTokenizerFast) -> set[str]:
    """Return the markers that may end a turn: the vocabulary's known ones."""
    known = {str(tokenizer.eos_token), "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "</s>", "<|call|>", "<|return|>"}
    return known & tokenizer.get_vocab().keys()


def _shown(calls: Sequence[ToolCall]) -> str:
    return "; ".join(f"{call.name} {call.arguments}" for call in calls)[:_SHOWN] or "no call"
