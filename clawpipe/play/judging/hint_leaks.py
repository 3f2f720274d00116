"""Leave out hints that contain the truth of a held-out item, because a model trained on them would know the answer, and hints that
are orders for other conversations, because one user's must not teach the model what it says to all.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.words import is_spaceless, words_of
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, dataset_rows, publish_dataset
from clawpipe.core.store.parts import rechunk
from clawpipe.core.store.refs import DatasetRef, StepResult

Row = Mapping[str, Any]

_LONG = 12  # characters of a truth that is in no other sentence by chance
_CONTENT = 4  # letters of a word that says what a question is about
_LEAK, _ORDER = "gives away a held-out truth", "orders what to say in other conversations"
_ORDERING = (  # whole words
    r"always|never|from (?:now|here) on|hereafter|henceforth|going forward|in (?:the )?future",
    r"future (?:answers|replies|chats|users)|other (?:users|customers|clients|conversations|chats)",
    r"(?:every|each) (?:time|user|customer|client|person|answer|reply|response|conversation|chat)",
    r"(?:all|any) (?:users|customers|clients|people|answers|replies|responses|questions|conversations|chats)",
    r"(?:to|tell|for) (?:every|any)(?:one|body)|tell others|(?:any|every)(?:one|body) who|everyone that",
    r"when(?:ever)? (?:some|any)(?:one|body)|whatever (?:they|the user|is)|no matter (?:what|who)|regardless of",
    "(?:ignore|disregard|override) (?:the|all|any|your|earlier|previous)|forget (?:all|earlier|previous)",
    "whoever|constantly|at all times|as a rule|in any case|advertise|(?:every|each|any) message",
    "any(?:one|body) (?:asking|asks|wanting|wants|else)",
    "(?:tell|show|remind|convince|let|make|sure that) (?:people|users|customers|clients)",
    r"as soon as \w+ (?:is|are|come|comes) (?:up|mentioned)",
    "immer|niemals|nie wieder|ab jetzt|ab sofort|von nun an|künftig|zukünftig|in zukunft|allen? (?:nutzern?|kunden|anderen)",
    "jede[mnrs]? (?:nutzer|kunden?|antwort|gespräch|mal)|jede[mnr],? der|stets|jederzeit|grundsätzlich|wer auch immer",
    "toujours|jamais|d[ée]sormais|dor[ée]navant|[àa] l'avenir|[àa] (?:tous|tout le monde)",
    "chaque (?:fois|r[ée]ponse|client|utilisateur)|constamment|quiconque|[àa] chacun|n'importe qui",
    "siempre|nunca|a partir de ahora|en adelante|en el futuro|a todo el mundo|a todos|cada (?:vez|respuesta|cliente|usuario)",
    "(?:a|para) cualquiera|cualquiera que|constantemente|quienquiera",
    "sempre|jam[áa]s|d'ora in poi|in futuro|a tutti|ogni (?:volta|risposta|cliente|utente)",
    "chiunque|costantemente|in ogni caso",
    "a partir de agora|daqui em diante|no futuro|toda vez|cada resposta|qualquer (?:um|pessoa)|quem quer que",
    "всегда|никогда|всем|каждому|каждый раз|впредь|отныне|любому|всякому|постоянно",
)
_ORDERING_ANYWHERE = (
    "总是|永远|从现在|今后|以后|每次|一律|所有(?:人|用户)|每(?:个|位)(?:用户|人)|任何人",
    "必ず|常に|いつも|決して|今後|毎回|みんなに|皆に|誰にでも|誰でも|全員に",
)
_ORDERS = re.compile(rf"\b(?:{'|'.join(_ORDERING)})\b|{'|'.join(_ORDERING_ANYWHERE)}", re.IGNORECASE)
_FIGURE = re.compile(r"\d{3,}|\d+[.,:/-]\d+|(?=\w*\d)(?=\w*[^\W\d])\w+")  # a number that is no count of things, or a code
_NAME = re.compile(r"[^\W\d_]+")
_COMMON_WORDS = """
    a an the and any or but if so as at by for from in into of off on out over to up with without about after again all
    also am are be been both can could did do does done each every either few first had has have he her here him his how
    i is it its just last least less let like many may me more most much must my never new next no none not nothing now
    null ok okay old one only other our own please same say see she should some such sure than thank thanks that their
    them then there these they this those three time true two unknown us very was we well were what when where which who
    whose why will would yes yet you your false left right good bad high low hello hi maybe ask tell use call answer
    reply result error ja nein oui non si no sim não da net der die das le la les el los las un une ein eine est es ist
    und et y e o
    是的 不是 没有 可以 不能 可能 正确 错误 什么 一个 这个 那个 我们 你们 他们
    はい いいえ です ます する こと ある ない
"""
_ANSWERING_WORDS = "answer reply result say solution correct antwort réponse respuesta resposta risposta ответ 答"
_COMMON, _ANSWERING = frozenset(_COMMON_WORDS.split()), frozenset(_ANSWERING_WORDS.split())


def clear_hints(store: Store, scores: DatasetRef, items: DatasetRef) -> StepResult:
    """Leave out hints that give away what held-out items ask for.

    Args:
        items: train and held-out items.

    Returns:
        output: `scores`, row by row; details["hints_left_out"] counts the hints, by reason, if there are any.

    Raises:
        DataError: a dataset is missing or damaged.
    """
    leaks = HintLeaks(partial(dataset_rows, store, items))
    batches = (batch for file in dataset_files(store, scores) for batch in _cleared(pq.read_table(file), leaks))
    output = publish_dataset(store, "scores", rechunk(batches, schema_of("scores")), parents=[scores.digest, items.digest])
    return StepResult(output=output, rows_in=scores.rows, rows_out=output.rows, details=leaks.details())


def _cleared(table: pa.Table, leaks: HintLeaks) -> list[pa.RecordBatch]:
    whole = conformed(table, schema_of("scores"))
    place = whole.schema.get_field_index("hints")
    rows = leaks.cleared(whole.select(["origin", "hints"]).to_pylist())
    hints = pa.array([row["hints"] for row in rows], whole.schema.field(place).type)
    return whole.set_column(place, whole.schema.field(place), hints).to_batches()


class Truth(NamedTuple):
    """A text of a truth: its words between spaces, whether it counts wherever it stands, and what its question is about."""

    words: str
    tells: bool
    about: frozenset[str]


class HintLeaks:
    """Removes and counts hints that contain a held-out truth word for word, apart from case, spaces and punctuation.

    A text of a truth does not count if the item's question contains it, or if it is also a text of a train item. One of less than
    12 characters counts wherever it stands if it is a name, a code, a figure of three digits or more, or two characters or more of
    a script without spaces. Any other, such as a small number or a plain word, counts in a hint that shares a word with its
    question or speaks of the answer. Common words do not count, nor do those that train items say. The verifier's own hints stay,
    because they concern their own item only.

    Args:
        items: yields the rows of `task_items`, twice; there may be millions of train items.
    """

    def __init__(self, items: Callable[[], Iterable[Row]]) -> None:
        held = [item for item in items() if item["split"] == "heldout"]
        asked = {_spaced(text) for item in held for text in _texts(json.loads(item["truth"]))}
        words = {word for text in asked for word in text.split()}
        trained, known = set[str](), set[str]()  # of what train items say, only what held-out truths say
        for item in items():
            for text in _said(item) if item["split"] != "heldout" else ():
                trained |= {text} & asked
                known |= words.intersection(text.split())
        told = {truth for item in held for truth in _truths(item, known)}
        self._truths = sorted((truth for truth in told if truth.words not in trained), key=lambda truth: truth.words)
        self._left_out: Counter[str] = Counter()

    def cleared(self, scores: Sequence[JsonObject]) -> list[JsonObject]:
        """Return rows of `scores` without such hints."""
        return [row if row["origin"] == "verifier" or not row["hints"] else self._cleared(row) for row in scores]

    def details(self) -> JsonObject:
        """Return the number of hints that were left out, by reason, where there are any."""
        return {"hints_left_out": dict(sorted(self._left_out.items()))} if self._left_out else {}

    def _cleared(self, row: JsonObject) -> JsonObject:
        reasons = {hint: self._reason(hint) for hint in row["hints"]}
        self._left_out.update(reason for hint in row["hints"] if (reason := reasons[hint]))
        return row | {"hints": [hint for hint in row["hints"] if not reasons[hint]] or None}

    def _reason(self, hint: str) -> str:
        """Return why a hint is left out; "" if it stays."""
        if self._gives_away(hint):
            return _LEAK
        return _ORDER if _ORDERS.search(hint) else ""

    def _gives_away(self, hint: str) -> bool:
        text = _spaced(hint)
        words = text.split()
        subjects, answers = set(_subjects(words)), not _ANSWERING.isdisjoint(words)
        return any(truth.tells or answers or truth.about & subjects for truth in self._truths if truth.words in text)


def _truths(item: Row, known: set[str]) -> Iterator[Truth]:
    """Yield the texts of a held-out item's truth that its other columns do not say, without short ones that are common.

    Args:
        known: words that train items say.
    """
    shown = _spaced(" ".join(_shown(item)))
    about = frozenset(_subjects(shown.split()))
    for written in _texts(json.loads(item["truth"])):
        text = _spaced(written)
        is_long = len(text.strip()) >= _LONG
        if text.strip() and text not in shown and (is_long or not _is_common(text.split(), known)):
            yield Truth(text, is_long or _tells(written, text.split()), about)


def _is_common(words: Sequence[str], known: set[str]) -> bool:
    """Whether a short text says what any hint may say by chance."""
    if all(map(is_spaceless, words)):
        return "".join(words) in _COMMON
    return all(word in _COMMON or (word in known and not word.isdigit()) or (len(word) == 1 and word.isalpha()) for word in words)


def _tells(written: str, words: Sequence[str]) -> bool:
    """Whether a short text is hardly in a sentence by chance."""
    if sum(map(is_spaceless, words)) > 1 or _FIGURE.search(written):
        return True
    return any(name[0].isupper() and len(name) > 1 and name.lower() not in _COMMON for name in _NAME.findall(written))


def _subjects(words: Sequence[str]) -> Iterator[str]:
    """Yield what a text is about: its longer words, and pairs of characters of scripts without spaces."""
    yield from (word for word in words if len(word) >= _CONTENT and word not in _COMMON)
    yield from (one + other for one, other in pairwise(words) if is_spaceless(one) and is_spaceless(other))


def _said(item: Row) -> Iterator[str]:
    """Yield the texts of all columns of an item."""
    yield from map(_spaced, (*_shown(item), *_texts(json.loads(item["truth"]))))


def _shown(item: Row) -> list[str]:
    return list(_texts({name: value for name, value in item.items() if name != "truth"}))


def _spaced(text: str) -> str:
    """Return the words of a text, with a space around each."""
    return f" {' '.join(words_of(text))} "


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)
    elif isinstance(value, str | float | int) and not isinstance(value, bool):
        yield str(value)
