"""Hold answers to a grammar: tokens that cannot lead to a valid answer are masked before each draw (llguidance)."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import ToolSpec, WrittenFormat
from clawpipe.serve.serving.errors import ApiError
from clawpipe.serve.serving.grammars.calls import answer, calls
from clawpipe.serve.serving.grammars.rules import Rules, choice

# Where in the grammar's text the library stood, which says nothing of the schema.
_PLACE = re.compile(r"\A(at \d+\(\d+\): )?(failed to compile JSON schema: )?")


@dataclass(frozen=True)
class Held:
    """What an answer is held to: a value of `schema`, calls of `tools`, or either where both are given.

    Attributes:
        several: whether it may make more than one call.
    """

    schema: JsonObject | None = None
    tools: Sequence[ToolSpec] = ()
    several: bool = True

    @property
    def field(self) -> str:
        """The field of the request that asks for it."""
        return "response_format" if self.schema is not None else "tool_choice"


class Grammars:
    """Makes constraints for one tokenizer and one tool-call format.

    Args:
        end: the token that ends an answer.
        size: the number of logits.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, format: WrittenFormat, end: int, size: int) -> None:
        self._format: WrittenFormat = format
        self._tokenizer, self._end, self._size = tokenizer, end, size

    def constraint(self, held: Held) -> Fitting:
        """Return the constraint of one answer.

        Raises:
            ApiError (400): a schema cannot be kept to, or llguidance is not installed.
        """
        if importlib.util.find_spec("llguidance") is None:
            what = f"{held.field}: to hold answers to it, the package llguidance is needed here: pip install 'clawpipe[json]'"
            raise ApiError(400, what, held.field)
        from llguidance import LLMatcher

        grammar = ""
        try:
            grammar = LLMatcher.grammar_from_lark(self._text(held))
            obstacle = LLMatcher.validate_grammar(grammar, self._vocabulary)
        except (ValueError, RecursionError) as error:  # UnkeptError is a ValueError
            obstacle = str(error) or "nested too deeply"
        if obstacle:
            what = f"{held.field}: no answer can be kept to this schema: {_reason(obstacle)}"
            raise ApiError(400, what, held.field, "invalid_value")
        return Fitting(LLMatcher(self._vocabulary, grammar), self._end, self._size)

    def _text(self, held: Held) -> str:
        rules = Rules(self._tokenizer.get_vocab().get)
        ways = [answer(rules, self._format, held.schema)] if held.schema is not None else []
        ways += [calls(rules, self._format, held.tools, held.several)] if held.tools else []
        return rules.grammar(choice(ways))

    @cached_property
    def _vocabulary(self) -> Any:
        from llguidance.hf import from_tokenizer

        return from_tokenizer(self._tokenizer, eos_token=self._end)


class Fitting:
    """The constraint of one answer. See `clawpipe.model.engines.sampling.Constraint`."""

    def __init__(self, matcher: Any, end: int, size: int) -> None:
        self._matcher, self._end, self._size = matcher, end, size

    def restrict(self, logits: Tensor) -> None:
        allowed = np.unpackbits(np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little")[: self._size]
        mask = torch.zeros(self._size, dtype=torch.bool)
        mask[: len(allowed)] = torch.from_numpy(allowed).bool()
        if self._matcher.is_error() or not mask.any():
            mask[self._end] = True  # an answer that cannot go on ends
        logits[~mask.to(logits.device)] = float("-inf")

    def accept(self, token: int) -> None:
        self._matcher.consume_token(token)


def _reason(obstacle: str) -> str:
    """Return the library's words in one line that names the keyword."""
    first, *others = _PLACE.sub("", obstacle.strip()).splitlines()
    if first.startswith("regex parse error"):
        return f"pattern: {others[-1].strip() if others else first}"
    named = {"Unknown format": "format", "Resource": "$ref", "Pointer": "$ref"}
    keyword = next((keyword for beginning, keyword in named.items() if first.startswith(beginning)), None)
    return f"{keyword}: {first}" if keyword else first
