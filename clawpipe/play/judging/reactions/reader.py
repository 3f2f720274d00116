"""Read a reaction: the clause in which a user speaks to the answer, and nothing else. Where that cannot be told, it abstains.

A clause is read from its beginning. It speaks to the answer if it begins with a phrase of a list ("that is not what I asked"), or
if it has no other words than such as may stand beside a word of praise or blame ("this is really not bad"). So an adjective in the
middle of something else is no verdict. Questions, requests, suppositions, quotations, code, pasted text and what programs write are
not read, nor are languages without a list. What is set against something counts before it ("thanks, but ..."), and blame before
praise. It reads the first line, and whether later ones take back its praise, or ask about it. The time that it takes is linear in
the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from clawpipe.core.conversation.messages import Message
from clawpipe.play.judging.reactions.clauses import Clause, clauses_of, points_up, said_by_user, said_later, words_of
from clawpipe.play.judging.reactions.words import Kind, Lexicon, lexicons, signs

PRAISE, BLAME = 1, -1
_VALUES: dict[Kind | None, int] = {"thanks": PRAISE, "praise": PRAISE, "good": PRAISE, "blame": BLAME, "bad": BLAME}
_FEWEST_ANNOUNCED = 3  # words of a sentence before a colon: "error:" and "wrong:" are names of what follows
_END = 200  # characters of an answer in which it may ask
_QUESTION_MARKS = ("?", "\uff1f")
_LATER_LINES = 8  # that may take praise back
_SARCASM = (" /s", " /sarcasm")  # at the end of a message


@dataclass(frozen=True)
class Reaction:
    """What a user says of an answer: `sign` is 1 for praise and -1 for blame, `said` the words that say so."""

    sign: int
    said: str = ""


@dataclass(frozen=True)
class _Read:
    """A clause as it was read.

    Attributes:
        sign: 1, -1, or 0 of what is no reaction.
        said: its words.
        needs_the_floor: whether it speaks to the answer only if nothing else was said before it: people thank for what they have
            not got yet, and call other things beautiful.
        is_light: whether it says nothing at all.
        against: whether it is set against what was said before.
        doubts: whether praise before it is not meant, or not of all.
    """

    sign: int = 0
    said: str = ""
    needs_the_floor: bool = False
    is_light: bool = False
    against: bool = False
    doubts: bool = False


def read_reaction(text: str, answer: str = "") -> Reaction | None:
    """Return how a user reacts to an answer; None where that cannot be told.

    Args:
        text: the user's next message.
        answer: what the user reacts to: after a question of the assistant "no" is an answer.
    """
    reaction, later = _read_line(said_by_user(text), answer), said_later(text)
    if reaction is None or _is_pasted(later) or (reaction.sign == PRAISE and _blames(later)):
        return None
    return reaction


def _blames(later: str) -> bool:
    """Whether one of the lines after the first blames: "thanks", and below it "but it still crashes"."""
    read = (_read_line(line, "") for line in later.splitlines()[:_LATER_LINES])
    return any(one is not None and one.sign == BLAME for one in read)


def _is_pasted(later: str) -> bool:
    """Whether what follows a first line asks about a text, which that line then belongs to: "is this review positive?"."""
    words = words_of(later)
    return points_up(later) or any(one.place_of(one.pasted, words, range(len(words))) is not None for one in lexicons().values())


def _read_line(said: str, answer: str) -> Reaction | None:
    line, pictured = _without_pictures(said)
    clauses = clauses_of(line)
    answers = any(mark in answer[-_END:] for mark in _QUESTION_MARKS)
    languages = _languages(clauses)
    heard = [_hear(lexicon, clauses, answers) for lexicon in languages]
    found = {one.sign: one for one in reversed(heard) if one.sign}
    if len(found) > 1 or (PRAISE in found and _is_not_meant(languages, clauses, line)):
        return None
    says = next(iter(found.values()), None)
    if pictured and (says or not clauses or any(one.is_light for one in heard)):
        return _with_pictures(says, pictured)
    return None if pictured or says is None else Reaction(says.sign, says.said)


def reactions_to(messages: Sequence[Message]) -> Iterator[tuple[str, Reaction]]:
    """Yield what users said after an answer and how they reacted, where they did."""
    for answer, said in pairwise(messages):
        if (answer.role, said.role) == ("assistant", "user") and (reaction := read_reaction(said.content, answer.content)):
            yield said.content, reaction


def _is_not_meant(languages: Sequence[Lexicon], clauses: Sequence[Clause], line: str) -> bool:
    """Whether thanks are for what is still to come, or praise is marked as sarcasm."""
    return line.rstrip(" .!").endswith(_SARCASM) or any(lexicon.is_ahead(one.words) for lexicon in languages for one in clauses)


def _without_pictures(line: str) -> tuple[str, set[int]]:
    """Return a line without the pictures that say something, and what they say."""
    praise, blame = signs()
    pictured = {PRAISE for one in line if one in praise} | {BLAME for one in line if one in blame}
    return "".join(" " if one in praise | blame else one for one in line), pictured


def _with_pictures(says: _Read | None, pictured: set[int]) -> Reaction | None:
    """Return what words and pictures come to: praise with a picture of blame is not meant, and blame may be said with a smile.
    Pictures of both alone say nothing."""
    if says is None and len(pictured) > 1:
        return None
    meant = pictured | ({says.sign} if says else set())
    return Reaction(min(meant), says.said if says and says.sign == min(meant) else "")


def _languages(clauses: Sequence[Clause]) -> list[Lexicon]:
    """Return the lists of the languages that the clauses may be written in: of one script, those of which they have most frequent
    words, and of these those that know most of the words."""
    words = [word for clause in clauses for word in clause.words]
    script = _script_of(words)
    known = [lexicon for lexicon in lexicons().values() if lexicon.script == script]
    counts = [lexicon.knows(words) for lexicon in known]
    return [lexicon for lexicon, count in zip(known, counts, strict=True) if count == max(counts)]


def _script_of(words: Iterable[str]) -> str:
    letters = "".join(words)
    for script, first, last in (("kana", "\u3040", "\u30ff"), ("han", "\u3400", "\u9fff"), ("cyrillic", "\u0400", "\u04ff")):
        if any(first <= letter <= last for letter in letters):
            return script
    return "latin"


def _hear(lexicon: Lexicon, clauses: Sequence[Clause], answers: bool) -> _Read:
    """Return what all clauses together come to."""
    heard, other, doubted, light = _Read(), False, False, True
    parts = [one for whole in clauses for one in _parts(lexicon, whole)]
    read = [_read(lexicon, clause, answers and not place) for place, clause in enumerate(parts)]
    if any(lexicon.owns_a_mistake(clause.words) for clause in parts):  # "sorry, I meant Paris" puts one's own words right
        read = [_Read() if lexicon.says_what_was_meant(one.words) else said for one, said in zip(parts, read, strict=True)]
    if _corrects(lexicon, parts, read) or (not answers and (_denies(lexicon, parts) or _refuses(lexicon, parts, read))):
        return _Read(BLAME, " ".join(parts[0].words))
    for one in read:
        light, other = light and one.is_light, other and not one.against
        if one.sign and not (one.needs_the_floor and other):
            heard = heard if (heard.sign, one.sign, one.against) == (BLAME, PRAISE, False) else one
        elif not one.is_light:
            doubted |= heard.sign == PRAISE and one.doubts
            other = True
    return _Read(is_light=light) if heard.sign == PRAISE and doubted else heard


def _corrects(lexicon: Lexicon, parts: Sequence[Clause], read: Sequence[_Read]) -> bool:
    """Whether all that is said is two short clauses such as "not tomorrow, today"."""
    if len(parts) != 2 or any(one.sign or one.is_light or clause.asks for one, clause in zip(read, parts, strict=True)):
        return False
    first, second = (clause.words for clause in parts)
    negates = lexicon.kinds.get(first[:1]) == "not" and first[0] in lexicon.common and not lexicon.is_neutral(first)
    return negates and len(first) in (2, 3) and len(second) <= 2


def _denies(lexicon: Lexicon, parts: Sequence[Clause]) -> bool:
    """Whether nothing is said but "no"."""
    return len(parts) == 1 and not parts[0].asks and all((word,) in lexicon.denies for word in parts[0].words)


def _refuses(lexicon: Lexicon, parts: Sequence[Clause], read: Sequence[_Read]) -> bool:
    """Whether "no" is said, and then what was wanted: "no, I asked for a short answer"; unless what came is praised after all."""
    says = _after_no(lexicon, parts, read)
    praised = any(one.sign == PRAISE and not lexicon.thanks(clause.words) for clause, one in zip(parts, read, strict=True))
    if says is None or says.asks or praised or lexicon.supposes_something(says.words):
        return False
    return lexicon.says_what_was_wanted(says.words) and not lexicon.praises_somewhere(says.words)


def _after_no(lexicon: Lexicon, parts: Sequence[Clause], read: Sequence[_Read]) -> Clause | None:
    """Return the clause that follows a "no", or the rest of the one that begins with it; None if nothing does."""
    words = parts[0].words if parts else ()
    said = lexicon.end_of(lexicon.denies, words)
    if not said or (lexicon.is_neutral(words) and lexicon.at(words, 0)[1] > said):
        return None
    rest = words[said:]
    if not all((word,) in lexicon.denies or lexicon.kinds.get((word,)) in ("light", "not") for word in rest):
        return replace(parts[0], words=rest)
    return next((clause for clause, one in zip(parts[1:], read[1:], strict=True) if not one.is_light), None)


def _parts(lexicon: Lexicon, clause: Clause) -> Iterator[Clause]:
    """Yield a clause, or its two parts if a word in it sets the second against the first; that word begins the second."""
    at = lexicon.place_of(lexicon.but, clause.words, range(1, len(clause.words)))
    if at is None:
        yield clause
    else:
        yield Clause(clause.words[:at])
        yield replace(clause, words=clause.words[at:])


def _read(lexicon: Lexicon, clause: Clause, answers: bool) -> _Read:
    """Read a clause by itself."""
    skipped = lexicon.end_of(lexicon.but, clause.words)
    words, against = clause.words[skipped:], skipped > 0
    if clause.asks or lexicon.asks_or_supposes(words):
        return _Read()
    if lexicon.is_neutral(words):
        return _Read(is_light=lexicon.at(words, 0)[1] == len(words) and not against, doubts=against)
    if lexicon.says_that_trouble_is_over(words):
        return _Read(PRAISE, " ".join(words), against=against)
    read = _begun(lexicon, words)
    if not read.sign and lexicon.place_of(lexicon.within, words, range(len(words))) is not None:
        read = replace(read, sign=BLAME, is_light=False)
    if answers and lexicon.kinds.get(words[:1]) == "not":
        read = replace(read, sign=0)
    if clause.announces and (read.sign == PRAISE or len(words) < _FEWEST_ANNOUNCED):
        read = _Read()
    doubts = against or lexicon.place_of(lexicon.now, words, [0]) is not None or lexicon.blames_somewhere(words)
    doubts |= lexicon.names_trouble(words) or (len(words) == 1 and lexicon.kinds.get(words) == "not")  # "very helpful, not"
    return replace(read, said=" ".join(words), against=against, doubts=doubts)


def _begun(lexicon: Lexicon, words: Sequence[str]) -> _Read:
    """Return what a clause says by its beginning, or by all of its words."""
    place, sign, turned, negated = 0, 0, False, False
    while place < len(words):
        kind, end = lexicon.at(words, place)
        if kind is None or kind == "neutral":
            return _Read()
        if kind in ("thanks", "praise", "blame"):
            if kind == "blame" and lexicon.turns_what_is_bad(words):
                return _Read()
            sign = _negated(lexicon, words[:place], kind) if turned else _VALUES[kind]
            taken_back = kind != "blame" and lexicon.takes_back(words[end:], of_thanks=kind == "thanks")
            return _Read(0 if taken_back else sign, needs_the_floor=kind == "thanks")
        if kind in _VALUES:
            sign = sign or (-_VALUES[kind] if turned else _VALUES[kind])
        turned, negated = kind == "not" or (turned and kind == "light"), negated or kind == "not"
        place = end
    return _Read(sign, needs_the_floor=sign == PRAISE, is_light=bool(words) and not (sign or negated))


def _negated(lexicon: Lexicon, before: Sequence[str], kind: Kind) -> int:
    """Return what a phrase says after a word that turns it: "not very helpful" is blame. "No" may answer something else."""
    if kind == "blame":
        return BLAME
    turning = next(word for word in reversed(before) if lexicon.kinds.get((word,)) == "not")
    return BLAME if kind == "praise" and (turning,) not in lexicon.denies else 0
