"""Which library holds answers to a grammar at less cost, llguidance or xgrammar? Prints ratios of both, measured in turn.

    pip install xgrammar==0.2.8 && python benchmarks/grammars.py --json > benchmarks/grammars.json

For each schema: the time until the first mask of a grammar that was never seen before, and the time for the mask of one token, the
mean over the tokens of a fitting answer; a figure is the median of the repeats. Of llguidance's mask also the share of one pass of
the model for one token. The model is SmolLM2-135M on one thread; its vocabulary has 49,152 tokens. Then, for each keyword: whether
a value that fits it is taken, and one that breaks it is kept out.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import llguidance
import torch
import xgrammar  # pyright: ignore[reportMissingImports]
from llguidance.hf import from_tokenizer
from llguidance.torch import fill_next_token_bitmask
from transformers import AutoModelForCausalLM

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.vocabulary import load_tokenizer

TEXT, COUNT = {"type": "string"}, {"type": "integer"}


def object_of(**properties: Any) -> JsonObject:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


_LINE = object_of(item=TEXT, pieces=COUNT, size={"enum": ["small", "large"]})
SCHEMAS: dict[str, tuple[JsonObject, Any]] = {
    "a call of one argument": (object_of(city={"enum": ["Oslo", "Bergen"]}), {"city": "Oslo"}),
    "an order with lines": (
        object_of(name=TEXT, lines={"type": "array", "items": _LINE}, note={"anyOf": [TEXT, {"type": "null"}]}),
        {"name": "Ann", "lines": [{"item": "blue mug", "pieces": 12, "size": "large"}] * 6, "note": "ring the bell twice, please"},
    ),
    "forty fields": (
        object_of(**{f"field_{n}": (TEXT, COUNT)[n % 2] for n in range(40)}),
        {f"field_{n}": ("some words", n)[n % 2] for n in range(40)},
    ),
}
KEYWORDS: dict[str, tuple[JsonObject, Any, Any]] = {  # a schema, a value that fits and one that does not
    "enum": ({"enum": ["a", "b"]}, "a", "c"),
    "maxLength": ({"type": "string", "maxLength": 3}, "abc", "abcd"),
    "pattern": ({"type": "string", "pattern": "^[a-c]+$"}, "abc", "abd"),
    "format": ({"type": "string", "format": "date"}, "2026-01-31", "yesterday"),
    "minimum": ({"type": "integer", "minimum": 5, "maximum": 12}, 7, 13),
    "multipleOf": ({"type": "integer", "multipleOf": 5}, 10, 7),
    "maxItems": ({"type": "array", "items": COUNT, "maxItems": 2}, [1, 2], [1, 2, 3]),
    "prefixItems": ({"type": "array", "prefixItems": [COUNT, TEXT], "items": False}, [1, "a"], ["a", 1]),
    "required": ({"type": "object", "properties": {"a": COUNT}, "required": ["a"]}, {"a": 1}, {}),
    "additionalProperties": ({"type": "object", "properties": {"a": COUNT}, "additionalProperties": False}, {"a": 1}, {"b": 1}),
    "patternProperties": (
        {"type": "object", "patternProperties": {"^x": COUNT}, "additionalProperties": False},
        {"xa": 1},
        {"ya": 1},
    ),
    "allOf": ({"allOf": [{"type": "integer", "minimum": 5}, {"maximum": 7}]}, 6, 9),
    "$ref": ({"$ref": "#/$defs/n", "$defs": {"n": COUNT}}, 1, "a"),
}


class Matcher(Protocol):
    """A grammar at a place in an answer."""

    def mask(self) -> None: ...
    def take(self, token: int) -> bool: ...
    def is_over(self) -> bool: ...


class Llguidance:
    def __init__(self, tokenizer: Any, vocabulary: int) -> None:
        self._tokenizer, self._bits = from_tokenizer(tokenizer), torch.zeros(1, (vocabulary + 31) // 32, dtype=torch.int32)

    def start(self, schema: JsonObject) -> Matcher:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        matcher = llguidance.LLMatcher(self._tokenizer, grammar)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return _Llguided(matcher, self._bits)


class _Llguided:
    def __init__(self, matcher: Any, bits: torch.Tensor) -> None:
        self._matcher, self._bits = matcher, bits

    def mask(self) -> None:
        fill_next_token_bitmask(self._matcher, self._bits, 0)

    def take(self, token: int) -> bool:
        return self._matcher.try_consume_tokens([token]) == 1

    def is_over(self) -> bool:
        return self._matcher.is_accepting()


class Xgrammar:
    def __init__(self, tokenizer: Any, vocabulary: int) -> None:
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocabulary)
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self._bits, self._end = xgrammar.allocate_token_bitmask(1, vocabulary), tokenizer.eos_token_id

    def start(self, schema: JsonObject) -> Matcher:
        compiled = self._compiler.compile_json_schema(json.dumps(schema), any_whitespace=True)
        return _Xgrammared(xgrammar.GrammarMatcher(compiled), self._bits, self._end)


class _Xgrammared:
    def __init__(self, matcher: Any, bits: torch.Tensor, end: int) -> None:
        self._matcher, self._bits, self._end = matcher, bits, end

    def mask(self) -> None:
        self._matcher.fill_next_token_bitmask(self._bits)

    def take(self, token: int) -> bool:
        return self._matcher.accept_token(token)

    def is_over(self) -> bool:
        return self._matcher.accept_token(self._end)


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def first_mask(library: Llguidance | Xgrammar, schema: JsonObject) -> float:
    return seconds(lambda: library.start(schema).mask())


def token_masks(library: Llguidance | Xgrammar, schema: JsonObject, answer: Sequence[int]) -> float:
    """Return the seconds that the mask of one token takes on average."""
    matcher, spent = library.start(schema), 0.0
    for token in answer:
        spent += seconds(matcher.mask)
        assert matcher.take(token)
    return spent / len(answer)


def keeps(library: Llguidance | Xgrammar, tokenizer: Any, schema: JsonObject, value: Any) -> str:
    """Return what a library makes of a value: taken, kept out or, where it cannot read the schema, refused."""
    try:
        matcher = library.start(schema)
    except Exception:  # each library has errors of its own
        return "refused"
    taken = all(matcher.take(token) for token in tokenizer(json.dumps(value)).input_ids) and matcher.is_over()
    return "taken" if taken else "kept out"


def one_pass(path: Path, repeats: int) -> float:
    """Return the seconds of the model's pass for one token after 256 others."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with torch.inference_mode():
        cache = model(input_ids=torch.ones(1, 256, dtype=torch.long)).past_key_values
        token = torch.ones(1, 1, dtype=torch.long)
        return median(seconds(lambda: model(input_ids=token, past_key_values=cache)) for _ in range(repeats))


def measured(libraries: Sequence[Llguidance | Xgrammar], tokenizer: Any, passed: float, repeats: int) -> JsonObject:
    found: JsonObject = {}
    for name, (schema, answer) in SCHEMAS.items():
        tokens = tokenizer(json.dumps(answer)).input_ids
        compiled = [[first_mask(library, schema) for library in libraries] for _ in range(repeats)]
        masked = [[token_masks(library, schema, tokens) for library in libraries] for _ in range(repeats)]
        for what, rows in (("first mask", compiled), ("mask of a token", masked)):
            ours, theirs = (median(column) for column in zip(*rows, strict=True))
            found[f"{name}: {what}"] = {"xgrammar / llguidance": round(theirs / ours, 3)}
        found[f"{name}: mask of a token"]["llguidance / one pass"] = round(ours / passed, 4)
    return found


def kept(libraries: Sequence[Llguidance | Xgrammar], tokenizer: Any) -> JsonObject:
    names = [type(library).__name__.lower() for library in libraries]
    return {
        keyword: {
            name: f"{keeps(library, tokenizer, schema, good)}, {keeps(library, tokenizer, schema, bad)}"
            for name, library in zip(names, libraries, strict=True)
        }
        for keyword, (schema, good, bad) in KEYWORDS.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path = resolve_base("smollm2-135m-instruct").path
    tokenizer = load_tokenizer(path)
    libraries = (Llguidance(tokenizer, len(tokenizer)), Xgrammar(tokenizer, len(tokenizer)))
    results: JsonObject = {
        "conditions": {"machine": platform.machine(), **{name: version(name) for name in ("llguidance", "xgrammar")}},
        "ratios": measured(libraries, tokenizer, one_pass(path, arguments.repeats), arguments.repeats),
        "what fits, what does not": kept(libraries, tokenizer),
    }
    print(json.dumps(results, indent=2) if arguments.json else results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
