"""Find out what an engine says of its tokens with one model, by a few requests for one token.

- Whether it says which tokens it sampled.
- Of which kind their log-probs are (see `clawpipe.core.contracts.logprobs`), from which also the temperature of a request that
  names
  none follows.
- Whether a request that names no sampling settings is drawn from the policy itself, or a default of the engine, such as top_p in a
  model's `generation_config.json`, changes the draw. With tempered log-probs the log-probs tell it. With others, many tokens are
  drawn with one seed, once as the engine likes and once with every setting at its neutral value: the tokens are the same unless a
  default changes the draw. An engine that keeps no seed cannot be told from one with such defaults.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.contracts.logprobs import default_temperature, kind_by_temperatures
from clawpipe.data.capture.records import LogprobsKind
from clawpipe.data.wire.draw import NEUTRAL
from clawpipe.serve.gateway.answers import NO_TOKENS as NONE_GIVEN
from clawpipe.serve.gateway.answers import Collected

KINDS: dict[str, LogprobsKind] = {"tempered": "tempered", "raw": "raw"}
KIND_HEADER = "x-clawpipe-logprobs"  # `clawpipe serve` says the kind, and has neutral defaults
_TOP = 5
_DRAWS, _FEWEST = 128, 32  # with one seed; top_p 0.9 changes one in ten
_APART = 0.04  # share of draws that may differ by the rounding of an engine that is busy
_SHIFT = 0.02  # in nats, between two normalisations over the same tokens; top_p 0.95 shifts by 0.05


@dataclass(frozen=True)
class Capabilities:
    """What an engine says of its tokens with one model.

    Attributes:
        temperature: of requests that name none; None if it is unknown.
        neutral: whether requests that name no settings are drawn from the policy itself.
        why: why there are no tokens, if there are none.
    """

    tokens: bool
    logprobs_kind: LogprobsKind = "none"
    temperature: float | None = None
    neutral: bool = False
    why: str = NONE_GIVEN

    def __str__(self) -> str:
        if not self.tokens:
            return "tokens: none, only text is captured"
        sampled = "its default temperature is unknown" if self.temperature is None else f"default temperature {self.temperature:g}"
        draw = "" if self.neutral else "; its defaults change what is drawn, or it keeps no seed: requests have to name theirs"
        return f"token ids, {self.logprobs_kind} log-probs, {sampled}{draw}"

    @property
    def defaults(self) -> JsonObject | None:
        """The engine's defaults, as `clawpipe.data.wire.draw` takes them: neutral, or None."""
        return {} if self.neutral else None


NO_TOKENS, UNKNOWN = Capabilities(tokens=False), Capabilities(tokens=True)
Ask = Callable[[JsonObject], Awaitable["OneToken | None"]]  # sends a request for one token; None: the engine refuses it


@dataclass(frozen=True)
class OneToken:
    """An answer of one token, the log-probs of the likeliest tokens by their text, and their kind where the engine says it."""

    collected: Collected
    top: dict[str, float]
    kind: LogprobsKind | None

    @classmethod
    def of(cls, data: bytes, kind: str) -> OneToken | None:
        try:
            body = orjson.loads(data)
            collected = Collected()
            collected.add(body)
            entries = ((body["choices"][0].get("logprobs") or {}).get("content") or [{}])[0].get("top_logprobs") or []
            return cls(collected, {entry["token"]: float(entry["logprob"]) for entry in entries}, KINDS.get(kind))
        except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, ValueError, AttributeError):
            return None

    @property
    def drawn(self) -> list[int]:
        """The token of each choice."""
        return [answer.token_ids[0] for answer in self.collected.answers(with_tokens=True) if answer.token_ids]


async def find_out(model: str, ask: Ask) -> Capabilities | None:
    """Return an engine's capabilities with a model; None if it answers no request for the model."""

    async def asked(**sampling: Any) -> OneToken | None:
        return await ask(_body(model) | {"return_token_ids": True, "logprobs": True, "top_logprobs": _TOP} | sampling)

    one = await asked(temperature=1.0)
    if one is None:
        return NO_TOKENS if await ask(_body(model)) else None
    if one.kind and not one.collected.no_tokens():
        return Capabilities(True, one.kind, temperature=1.0, neutral=True)
    many = {"temperature": 2.0, "seed": 1, "n": _DRAWS}
    two = await asked(**many) or await asked(temperature=2.0)
    if two is None or one.collected.no_tokens():
        return NO_TOKENS
    kind = kind_by_temperatures(one.top, two.top)
    default = await asked() if kind == "tempered" else None
    temperature = default_temperature(one.top, default.top) if default else None
    neutral = await asked(**many, **NEUTRAL) or await asked(temperature=2.0, **NEUTRAL)
    return Capabilities(True, kind, temperature, neutral=_is_neutral(kind, two, neutral))


def _body(model: str) -> JsonObject:
    """Return a request for one token. Its words are likely ones, so that a penalty on what was said before shows."""
    return {"model": model, "messages": [{"role": "user", "content": "Say a word: yes, no, word."}], "max_tokens": 1}


def _is_neutral(kind: LogprobsKind, by_default: OneToken, neutral: OneToken | None) -> bool:
    """Whether an answer by the engine's defaults is one of the neutral settings."""
    if neutral is None:
        return False
    if kind == "tempered":
        shifts = [abs(by_default.top[token] - value) for token, value in neutral.top.items() if token in by_default.top]
        return len(shifts) == len(neutral.top) > 0 and max(shifts) < _SHIFT
    return _are_same(by_default.drawn, neutral.drawn)


def _are_same(one: Sequence[int], other: Sequence[int]) -> bool:
    if len(one) != len(other) or len(one) < _FEWEST:
        return False
    return sum(first != second for first, second in zip(one, other, strict=True)) <= _APART * len(one)
