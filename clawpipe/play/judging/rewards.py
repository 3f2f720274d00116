"""Small rewards that a config can add to the verifier's with a weight: pure functions of replies, and their scorers.

scorers:
  - { name: overlong, options: { most: 512, soft: 128 }, weight: 1.0 }
  - { name: repetition, weight: 0.2 }
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.basics.patterns import fits
from clawpipe.core.basics.schemas import argument_error
from clawpipe.core.config.curation import Script
from clawpipe.core.conversation.messages import ToolCall, ToolSpec
from clawpipe.data.wire.arguments import arguments_of
from clawpipe.errors import ConfigError
from clawpipe.play.judging.base import Origin, Score
from clawpipe.play.judging.exchanges import Exchange, exchanges_of

_WORD = re.compile(r"\w+")
_NAMED_OTHERWISE = {"Han": "CJK"}  # in the names of Unicode's letters


def overlong(tokens: int, most: int, soft: int) -> float:
    """Return DAPO's soft overlong punishment (arXiv 2503.14476, equation 13).

    It is 0 for n <= most - soft tokens, (most - soft - n) / soft for n <= most, and -1 for longer replies.
    """
    if tokens <= most - soft:
        return 0.0
    return (most - soft - tokens) / soft if tokens <= most else -1.0


def cosine_length(tokens: int, most: int, shortest: float, longest: float) -> float:
    """Return longest + (shortest - longest) (1 + cos(pi min(n, most) / most)) / 2 for n tokens (arXiv 2502.03373, section 4).

    The reward of no tokens is `shortest`, that of `most` or more is `longest`. The paper has separate values for right and wrong
    answers.
    """
    return longest + 0.5 * (shortest - longest) * (1 + math.cos(math.pi * min(tokens, most) / most))


def repetition(text: str, words: int) -> float:
    """Return -(1 - distinct / all) over the text's n-grams of `words` words (arXiv 2502.03373); 0 if the text has fewer words."""
    all_words = _WORD.findall(text.casefold())
    grams = [tuple(all_words[start : start + words]) for start in range(len(all_words) - words + 1)]
    return len(set(grams)) / len(grams) - 1 if grams else 0.0


def follows_format(text: str, pattern: re.Pattern[str]) -> float:
    """Return 1 if the whole text has the form of a regular expression, else 0; 0 as well if that takes too long."""
    return float(fits(pattern, text) is True)


def fits_schema(calls: Sequence[ToolCall], tools: Sequence[ToolSpec]) -> float:
    """Return the share of calls that name a tool on offer with arguments that fit its schema; 1 of no calls. Where no tools are
    known, every call that can be read fits."""
    schemas = {tool.name: tool.parameters for tool in tools}
    fitting = sum(not call.malformed and (not schemas or _fits(call, schemas)) for call in calls)
    return fitting / len(calls) if calls else 1.0


def _fits(call: ToolCall, schemas: Mapping[str, JsonObject]) -> bool:
    return call.name in schemas and not argument_error(schemas[call.name], arguments_of(call))


def in_script(text: str, script: str) -> float:
    """Return the share of letters whose Unicode names begin with a script's, e.g. Cyrillic; 1 of a text without letters."""
    letters = [unicodedata.name(character, "") for character in text if character.isalpha()]
    begin = f"{_NAMED_OTHERWISE.get(script, script).upper()} "
    return sum(name.startswith(begin) for name in letters) / len(letters) if letters else 1.0


@dataclass(frozen=True)
class SmallReward:
    """Scores a rollout by its main turns; None is no score."""

    name: str
    value: Callable[[Sequence[Exchange], Row], float | None]
    origin: Origin = "custom"

    def score(self, item: Row, trajectory: Row) -> Iterator[Score]:
        turns = exchanges_of(trajectory)
        value = self.value(turns, trajectory) if turns else None
        if value is not None:
            yield Score(value)


def make_overlong(most: int, soft: int) -> SmallReward:
    """Return the scorer `overlong`. Raises ConfigError."""
    _require(0 < soft <= most, "overlong", "soft is above 0 and at most `most`")
    return _by_tokens("overlong", lambda tokens: overlong(tokens, most, soft))


def make_cosine_length(most: int, shortest: float = 1.0, longest: float = 0.0) -> SmallReward:
    """Return the scorer `cosine-length`. Raises ConfigError."""
    _require(most > 0, "cosine-length", "most is above 0")
    return _by_tokens("cosine-length", lambda tokens: cosine_length(tokens, most, shortest, longest))


def make_repetition(words: int = 3) -> SmallReward:
    """Return the scorer `repetition`. Raises ConfigError."""
    _require(words > 0, "repetition", "words is above 0")
    return SmallReward("repetition", lambda turns, row: repetition(_replies(turns), words))


def make_format(pattern: str) -> SmallReward:
    """Return the scorer `format`: of the last reply. Raises ConfigError."""
    try:
        compiled = re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise ConfigError(f"{pattern!r} is no regular expression: {error}", "scorers: format", "correct `pattern`") from None
    return SmallReward("format", lambda turns, row: follows_format(turns[-1].reply.content, compiled))


def make_tool_schema() -> SmallReward:
    """Return the scorer `tool-schema`: of the calls that tools on offer in the row answer to."""
    return SmallReward("tool-schema", lambda turns, row: fits_schema(_calls(turns), _offered(row)))


def make_script(script: str = "Latin") -> SmallReward:
    """Return the scorer `script`. Raises ConfigError."""
    _require(script in get_args(Script), "script", f"no script {script!r}: one of {', '.join(get_args(Script))}")
    return SmallReward("script", lambda turns, row: in_script(_replies(turns), script))


def _by_tokens(name: str, value: Callable[[int], float]) -> SmallReward:
    """Return the scorer of a function of the number of tokens."""

    def of_row(turns: Sequence[Exchange], row: Row) -> float | None:
        tokens = _tokens(row)
        return None if tokens is None else value(tokens)

    return SmallReward(name, of_row)


def _tokens(row: Row) -> int | None:
    """Return the number of tokens of the main turns; None of text, whose tokens nobody knows."""
    if row["tokens"] == "none":
        return None
    return sum(turn["end"] - turn["start"] for turn in row["turns"] if turn["kind"] == "main")


def _replies(turns: Sequence[Exchange]) -> str:
    return "\n".join(turn.reply.content for turn in turns)


def _calls(turns: Sequence[Exchange]) -> list[ToolCall]:
    return [call for turn in turns for call in turn.reply.tool_calls]


def _offered(row: Row) -> list[ToolSpec]:
    functions = [tool.get("function", tool) for tool in json.loads(row["tools"] or "[]")]
    return [ToolSpec(one["name"], one.get("description", ""), one.get("parameters", {})) for one in functions]


def _require(condition: bool, name: str, what: str) -> None:
    if not condition:
        raise ConfigError(what, f"scorers: {name}", "see docs/judges.md")
