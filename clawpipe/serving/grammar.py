"""Constrain answers to a JSON Schema: tokens that cannot lead to a valid answer are masked before each draw (llguidance)."""

from __future__ import annotations

import importlib.util
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from clawpipe.json_types import JsonObject
from clawpipe.serving.errors import ApiError

_FIELD = "response_format"


class JsonGrammar:
    """Makes constraints for one tokenizer. `end` is the token that ends an answer, `size` the number of logits."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, end: int, size: int) -> None:
        self._tokenizer, self._end, self._size = tokenizer, end, size

    def constraint(self, schema: JsonObject) -> Fitting:
        """Return the constraint of one answer.

        Raises:
            ApiError (400): the schema cannot be kept to, or llguidance is not installed.
        """
        if importlib.util.find_spec("llguidance") is None:
            raise ApiError(400, f"{_FIELD}: JSON needs the package llguidance here: pip install 'clawpipe[json]'", _FIELD)
        from llguidance import LLMatcher

        try:
            # With any white space allowed, a model may write spaces until its answer is full.
            grammar = LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_flexible": False})
            obstacle = LLMatcher.validate_grammar(grammar, self._vocabulary)
        except ValueError as error:
            obstacle = str(error)
        if obstacle:
            what = f"{_FIELD}: no answer can be kept to this schema: {obstacle.splitlines()[0]}"
            raise ApiError(400, what, _FIELD, "invalid_value")
        return Fitting(LLMatcher(self._vocabulary, grammar), self._end, self._size)

    @cached_property
    def _vocabulary(self) -> Any:
        from llguidance.hf import from_tokenizer

        return from_tokenizer(self._tokenizer, eos_token=self._end)


class Fitting:
    """The constraint of one answer. See `clawpipe.engines.sampling.Constraint`."""

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
