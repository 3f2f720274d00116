"""Redact secrets and personal data in texts before anything is stored.

Hyperscan finds in one pass over many texts the few that may hold a match; DuckDB applies the rules to these.
"""

from __future__ import annotations

import secrets
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from itertools import count, pairwise
from typing import Any

import duckdb
import pyarrow as pa
from msgspec.structs import replace

import clawpipe.data.privacy
from clawpipe.core.conversation.messages import Message
from clawpipe.data.privacy.finders import FINDERS
from clawpipe.data.privacy.plain import plain, spliced
from clawpipe.data.privacy.rules import Rule, load_rules
from clawpipe.data.privacy.suspects import Search, Suspects

Change = tuple[int, list[str], list[str]]  # index of a text, the text in pieces, these pieces with placeholders for secrets

_SETTINGS: dict[str, Any] = {
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


@dataclass(frozen=True)
class Redacted:
    """Redacted texts.

    Args:
        texts: in the order given.
        changed: whether each text was changed.
        found: number of replacements by rule.
    """

    texts: list[str]
    changed: list[bool]
    found: Counter[str]


@dataclass(frozen=True)
class RedactedMessages:
    """Redacted conversations.

    Args:
        conversations: in the order given.
        changed: whether each conversation was changed. Its recorded tokens hold the secret and cannot be edited, because they
            would no longer be those that the policy saw: its row loses them all (`tokens: none`).
        found: number of replacements by rule.
    """

    conversations: list[tuple[Message, ...]]
    changed: list[bool]
    found: Counter[str]


def redact_texts(texts: Sequence[str], threads: int | None = None) -> Redacted:
    """Replace every secret by `[REDACTED:<rule>]`. One call for many texts is fast."""
    with redactor(threads) as redact:
        return redact.texts(texts)


@contextmanager
def redactor(threads: int | None = None, rules: Sequence[Rule] | None = None, compiled: Search | None = None) -> Iterator[Redactor]:
    """Yield a redactor for many batches, with rules that are set up once.

    Args:
        threads: CPU threads; None takes every core.
        rules: in the order in which they apply; None takes the rules that ship.
        compiled: the `search` of a redactor with the same rules in another process.
    """
    settings = _SETTINGS | ({"threads": threads} if threads else {})
    with duckdb.connect(":memory:", config=settings) as duck:
        yield Redactor(duck, load_rules() if rules is None else rules, compiled)


class Redactor:
    """Applies the rules in its own DuckDB connection. Not thread-safe."""

    def __init__(self, duck: duckdb.DuckDBPyConnection, rules: Sequence[Rule], compiled: Search | None = None) -> None:
        self._duck, self._rules = duck, rules
        duck.execute((resources.files(clawpipe.data.privacy) / "checks.sql").read_text(encoding="utf-8"))
        hinted = defaultdict[str, set[int]](set)  # numbers of the rules that ship, by the pattern that hints at them
        for number, rule in enumerate(rules):
            for hint in rule.hints if rule.ships else ():
                hinted[hint].add(number)
        self._hinted, self._suspects = list(hinted.values()), Suspects(tuple(hinted), compiled)
        self._own = [number for number, rule in enumerate(rules) if not rule.ships]
        self._mark = f"\x02{secrets.token_hex(8)}\x03"
        self._own_suspects = occurrence_query("given", [rules[number] for number in self._own])

    @property
    def search(self) -> Search | None:
        """The compiled patterns, for redactors in other processes; None without any."""
        return self._suspects.search

    def texts(self, texts: Sequence[str]) -> Redacted:
        redacted, changed = list(texts), [False] * len(texts)
        replaced, found = self._replaced(texts)
        for place, text in replaced.items():
            redacted[place], changed[place] = text, True
        return Redacted(redacted, changed, found)

    def _replaced(self, texts: Sequence[str]) -> tuple[dict[int, str], Counter[str]]:
        """Apply the rules in order; return the changed texts by index, and the number of replacements by rule.

        A replacement may uncover a match for a later rule, so changed texts are searched again.
        """
        read = list(map(plain, texts))
        may_apply, replaced, found = self._texts_by_rule(read), dict[int, str](), Counter[str]()
        for number, rule in enumerate(self._rules):
            places = sorted(may_apply[number])
            changed = self._applied(rule, places, [read[place] for place in places]) if places else []
            for place, pieces, hidden in changed:
                found[rule.name] += sum(before != after for before, after in zip(pieces, hidden, strict=True))
                written, before, read[place] = replaced.get(place, texts[place]), read[place], "".join(hidden)
                replaced[place] = read[place] if written == before else spliced(written, pieces, hidden)
            for other, again in self._texts_by_rule([read[place] for place, _, _ in changed]).items():
                may_apply[other].update(changed[one][0] for one in again)
        return replaced, +found

    def _applied(self, rule: Rule, places: Sequence[int], texts: Sequence[str]) -> list[Change]:
        """Return the changes of the texts that a rule changes."""
        if rule.finder:
            rows = [(place, *_found_pieces(rule, text)) for place, text in zip(places, texts, strict=True)]
            return [row for row in rows if len(row[1]) > 1]
        return self._selected(redaction_query("given", rule, self._mark), places, texts)

    def _texts_by_rule(self, texts: Sequence[str]) -> defaultdict[int, set[int]]:
        """Return the indices of the texts in which the patterns of each rule may occur, by the number of the rule."""
        found = defaultdict[int, set[int]](set)
        for place, numbers in self._suspects.among(texts).items():
            for number in {rule for hint in numbers for rule in self._hinted[hint]}:
                found[number].add(place)
        if self._own_suspects:  # RE2 understands them, Hyperscan may not
            own = {place for (place,) in self._selected(self._own_suspects, range(len(texts)), texts)}
            found.update((number, set(own)) for number in self._own)
        return found

    def _selected(self, query: str, places: Sequence[int], texts: Sequence[str]) -> list[tuple[Any, ...]]:
        """Run a query over the relation `given` of (id, text)."""
        self._duck.register("given", pa.table({"id": pa.array(places, pa.int64()), "text": pa.array(texts, pa.string())}))
        rows = self._duck.execute(query).fetchall()
        self._duck.unregister("given")
        return rows

    def messages(self, conversations: Sequence[Sequence[Message]]) -> RedactedMessages:
        texts, starts = _all_texts(conversations)
        replaced, found = self._replaced(texts)
        cleaned, changed = [tuple(messages) for messages in conversations], [False] * len(conversations)
        for number in {bisect(starts, place) - 1 for place in replaced}:  # few of many
            left = (replaced.get(place, texts[place]) for place in count(starts[number]))
            before, cleaned[number] = cleaned[number], tuple(_with_texts(message, left) for message in cleaned[number])
            changed[number] = before != cleaned[number]
        return RedactedMessages(cleaned, changed, found)


def occurrence_query(relation: str, rules: Sequence[Rule]) -> str | None:
    """Return SQL over (id, text) for the ids of rows with a match of any rule; None without rules."""
    anywhere = _literal("|".join(rule.anywhere for rule in rules))
    return f"select id from {relation} where regexp_matches(text, {anywhere})" if rules else None


def redaction_query(relation: str, rule: Rule, mark: str) -> str:
    """Return SQL over (id, text) for each text with a secret: its id, its pieces, and these with placeholders for secrets.

    The text is split at the rule's candidates, so that every second piece is one. The session must know `checks.sql`.

    Args:
        mark: a random separator around candidates, which no text can contain.
    """
    pattern, name = _literal(rule.pattern), _literal(rule.placeholder)
    marked = rf"string_split(regexp_replace(text, {pattern}, '\1{mark}\2{mark}\3', 'g'), '{mark}')"
    return f"""
        with cut as (select id, {marked} as pieces from {relation}),
            hidden as (
                select id, pieces, [
                    case when i % 2 = 0 and {_is_secret("piece", rule)} then {name} else piece end for piece, i in pieces
                ] as kept
                from cut
            )
        select id, pieces, kept from hidden where pieces != kept"""


def _found_pieces(rule: Rule, text: str) -> tuple[list[str], list[str]]:
    """Return a text in pieces, and these pieces with placeholders for what the rule's finder finds."""
    ends = [0, *(place for span in FINDERS[str(rule.finder)](text) for place in span), len(text)]
    pieces = [text[start:end] for start, end in pairwise(ends)]
    return pieces, [rule.placeholder if number % 2 else piece for number, piece in enumerate(pieces)]


def _is_secret(piece: str, rule: Rule) -> str:
    conditions = [f"not regexp_full_match({piece}, {_literal(rule.unless)})"] if rule.unless else []
    conditions += [f"{rule.check}({piece})"] if rule.check else []
    return " and ".join(conditions) or "true"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _all_texts(conversations: Sequence[Sequence[Message]]) -> tuple[list[str], list[int]]:
    """Return all contents, names and arguments of calls, and the index of each conversation's first one."""
    texts, starts = list[str](), list[int]()
    for messages in conversations:
        starts.append(len(texts))
        for message in messages:
            texts.append(message.content)
            for call in message.tool_calls:
                texts += (call.name, call.arguments)
    return texts, starts


def _with_texts(message: Message, texts: Iterator[str]) -> Message:
    """Replace the texts of a message by `texts`, in the order of `_all_texts`."""
    content = next(texts)
    calls = tuple(replace(call, name=next(texts), arguments=next(texts)) for call in message.tool_calls)
    return replace(message, content=content, tool_calls=calls)
