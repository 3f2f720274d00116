"""`rules`: a judge without a language model. Rules over the user's reaction and the tool results score each turn.

People should read `rules.yaml` beside this module. Patterns are RE2: the time they take is linear in the text, whatever it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Literal, Self

import duckdb
from pydantic import Field, ValidationError, model_validator

from clawpipe.core.basics.patterns import occurs
from clawpipe.core.config.block import Block, Fraction
from clawpipe.core.config.load import explain, read_yaml
from clawpipe.errors import ConfigError
from clawpipe.play.judging.base import Origin, Row, Score, with_mean
from clawpipe.play.judging.exchanges import Exchange, exchanges_of
from clawpipe.play.judging.reactions.reader import read_reaction
from clawpipe.play.judging.turn_faults import has_failed_call, repeats_a_call

SHIPPED = Path(__file__).with_name("rules.yaml")
_MOST_QUOTED = 200  # characters of the user's words in a hint
_MOST_REPEATED = 2000  # characters of a request that is compared with the one before
_STRAIGHT = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'})
_WORD = re.compile(r"[^\W_]+")
_PLACES = ("said", "words")  # that a hint may name
_FOUND = """
select rule, regexp_extract($text, pattern, 1)
from (select unnest($rules::int[]) as rule, unnest($patterns::varchar[]) as pattern)
where regexp_matches($text, pattern)
"""


class Rule(Block):
    """One rule. The first one that applies to a turn gives its verdict."""

    name: str = Field(pattern=r"^[a-z][a-z0-9\-]*$")
    when: Literal["praise", "blame", "reply", "repeated-request", "failed-call", "repeated-call"] = Field(
        description="what is looked at: the user's reaction, patterns in the user's next words, or the calls of the turn"
    )
    any: tuple[str, ...] = Field(default=(), description="RE2 patterns, without regard to case, of which one occurs in the text")
    value: float = Field(ge=-1, le=1)
    reach: Literal["exchange", "answer"] = Field(
        default="exchange", description="of the user's words: all turns since the request, or the last one"
    )
    share: Fraction = Field(default=0.9, description="of the words of a request that a repetition says again")
    hints: tuple[str, ...] = Field(
        default=(),
        description="sentences in hindsight; {words} is what the user said, {said} the reaction, or the pattern's first group",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.when != "failed-call" and (self.when == "reply") != bool(self.any):
            raise ValueError(f"`when: {self.when}` {'needs patterns in' if self.when == 'reply' else 'has no use for'} `any`")
        for pattern in self.any:
            _check_pattern(pattern)
        for hint in self.hints:
            _check_hint(hint)
        return self


class Rules(Block):
    """A file of rules."""

    rules: tuple[Rule, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [rule.name for rule in self.rules]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"rules: two are called {twice[0]}")
        return self


def load_rules(file: Path = SHIPPED) -> tuple[Rule, ...]:
    """Return the rules of a file, in the order in which they apply.

    Raises:
        NotFoundError: there is no such file.
        ConfigError: it cannot be read, or holds something else.
    """
    values = read_yaml(file)
    try:
        return Rules.model_validate(values).rules
    except ValidationError as error:
        wrong = explain(error, Rules, file)
        raise ConfigError(wrong.what, wrong.where, "docs/judges.md says what a file of rules may hold") from None


class RulesJudge:
    """Scores each assistant turn by the first rule that applies, and the trajectory with the mean of its turns.

    A turn that no rule applies to has no score.

    Args:
        file: a YAML file of rules; the shipped one if it is empty.

    Raises:
        ClawpipeError: see `load_rules`.
    """

    name = "rules"
    origin: Origin = "judge"

    def __init__(self, file: str = "") -> None:
        self._rules = load_rules(Path(file).expanduser() if file else SHIPPED)

    def score(self, item: Row, trajectory: Row) -> Iterator[Score]:
        yield from with_mean(score for turn in exchanges_of(trajectory) if (score := self.judge(turn)))

    def judge(self, turn: Exchange) -> Score | None:
        """Return the verdict on one turn; None if no rule applies to it."""
        reply = self._reacted(turn) | self._found("reply", turn.words)
        failed = self._found("failed-call", "\n".join(result.content for result in turn.results))
        for index, rule in enumerate(self._rules):
            matched = reply.get(index, failed.get(index))
            matched = _silent(rule, turn) if matched is None else matched
            if matched is not None and (turn.closes or rule.reach == "exchange" or rule.when.endswith("call")):
                return Score(rule.value, reason=rule.name, turn=turn.turn, hints=tuple(_hints(rule, turn, matched)))
        return None

    def _reacted(self, turn: Exchange) -> dict[int, str]:
        """Return the clause in which the user reacts to a turn, by the index of each rule for such a reaction."""
        reaction = read_reaction(turn.words, turn.reply.content)
        if reaction is None:
            return {}
        when = "praise" if reaction.sign > 0 else "blame"
        return {index: reaction.said for index, rule in enumerate(self._rules) if rule.when == when}

    def _found(self, when: str, text: str) -> dict[int, str]:
        """Return what the first group of each rule's pattern matched in the text, by the index of the rule."""
        patterns = [(index, _grouped(one)) for index, rule in enumerate(self._rules) if rule.when == when for one in rule.any]
        if not patterns or not text.strip():
            return {}
        rules, searched = zip(*patterns, strict=True)
        asked = {"text": text.translate(_STRAIGHT), "rules": list(rules), "patterns": list(searched)}
        return dict(reversed(self._duck.execute(_FOUND, asked).fetchall()))

    @cached_property
    def _duck(self) -> duckdb.DuckDBPyConnection:
        return duckdb.connect(":memory:", config={"threads": "1"})


def _silent(rule: Rule, turn: Exchange) -> str | None:
    """Return "" if a rule applies to a turn whatever its patterns find, else None."""
    if rule.when == "failed-call":
        return "" if has_failed_call(turn) else None
    if rule.when in ("praise", "blame", "reply"):
        return None
    if rule.when == "repeated-request":
        return "" if _is_repeated(turn.request, turn.words, rule.share) else None
    return "" if repeats_a_call(turn) else None


def _is_repeated(request: str, reply: str, share: float) -> bool:
    """Whether a reply repeats the words of a request, with at most as many other words, and after them a single one, as "please".

    "A joke about cats" is another request than "a joke".
    """
    asked, again = (_WORD.findall(text[:_MOST_REPEATED].casefold()) for text in (request, reply))
    if len(asked) < 3 or len(again) > 2 * len(asked) or not any(word in asked for word in again[-2:]):
        return False
    return sum(word in again for word in asked) >= share * len(asked)


def _hints(rule: Rule, turn: Exchange, matched: str) -> Iterator[str]:
    """Yield the rule's hints with the user's words in them; one that quotes what was not said is left out."""
    quoted = {"said": _quoted(matched), "words": _quoted(turn.words)}
    for hint in rule.hints:
        if all(text or f"{{{name}}}" not in hint for name, text in quoted.items()):
            yield hint.format(**quoted)


def _quoted(text: str) -> str:
    return " ".join(text.split())[:_MOST_QUOTED].rstrip(" .")


def _grouped(pattern: str) -> str:
    """Return a pattern in which group 1 is the first of its own groups, or all of it."""
    return f"(?i){pattern}" if re.compile(pattern).groups else f"(?i)({pattern})"


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
        duckdb.execute("select regexp_matches('', ?)", [pattern])
    except (duckdb.Error, re.error) as error:
        raise ValueError(f"{pattern!r} is no pattern: {str(error).splitlines()[0]}") from None
    if occurs(pattern, "") is not False:
        raise ValueError(f"{pattern!r} occurs in every text")


def _check_hint(hint: str) -> None:
    try:
        hint.format(**dict.fromkeys(_PLACES, ""))
    except (KeyError, IndexError, ValueError, AttributeError):
        raise ValueError(f"{hint!r} may name {', '.join(f'{{{name}}}' for name in _PLACES)} and nothing else in braces") from None
