"""The queue: the rows that would teach, with what is said of each, the most uncertain first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files
from clawpipe.core.store.refs import DatasetRef
from clawpipe.errors import NotFoundError
from clawpipe.play.judging.base import Scorer
from clawpipe.play.judging.exchanges import Exchange, exchanges_of
from clawpipe.record.reviews.decisions import Decision, Decisions
from clawpipe.record.reviews.opinions import Opinion, said_by, stored_opinions, uncertainty

_IDS = {"trajectories": "trajectory_id", "preference_pairs": "pair_id"}
_KINDS = {"trajectories": "conversation", "preference_pairs": "pair"}
_STREAMS = ("token_ids", "loss_mask", "logprobs", "rendered_ids", "rendered_mask", "rendered_logprobs")  # nobody reads them here
_OF_PAIR = ("prompt", "chosen", "rejected")
_SHORTEST = 6  # characters of an id that name a row
_BATCH = 256


@dataclass(frozen=True)
class Candidates:
    """Datasets of rows that may teach, and of what was said of them."""

    trajectories: Sequence[DatasetRef] = ()
    scores: Sequence[DatasetRef] = ()
    pairs: Sequence[DatasetRef] = ()


@dataclass(frozen=True)
class Entry:
    """A row of the queue.

    Attributes:
        kind: "conversation" or "pair".
        decision: the last one on it; None: there is none.
        dataset: where its text is.
    """

    row_id: str
    kind: str
    source: str
    session: str | None
    user: str | None
    dataset: DatasetRef
    opinions: Sequence[Opinion] = ()
    decision: Decision | None = None

    @property
    def uncertainty(self) -> float:
        return uncertainty(self.opinions)

    @property
    def decided(self) -> bool:
        return self.decision is not None and self.decision.verdict != "open"

    @property
    def seen(self) -> int:
        """The number of the last decision."""
        return self.decision.number if self.decision else 0

    def as_json(self) -> JsonObject:
        return {
            "row_id": self.row_id,
            "kind": self.kind,
            "source": self.source,
            "session": self.session,
            "user": self.user,
            "uncertainty": round(self.uncertainty, 4),
            "scores": [vars(one) | {"votes": list(one.votes)} for one in self.opinions],
            "decision": vars(self.decision) if self.decision else None,
        }


@dataclass
class Queue:
    """The rows that may teach. Decisions are read anew by each call, since others decide meanwhile.

    Args:
        scorers: judges that are asked about conversations that they have not scored.
    """

    store: Store
    candidates: Candidates
    decisions: Decisions
    scorers: Sequence[Scorer] = ()
    _rows: list[Entry] = field(init=False)

    def __post_init__(self) -> None:
        said = stored_opinions(self.store, self.candidates.scores)
        found = {entry.row_id: entry for entry in self._found(said)}
        self._rows = sorted(found.values(), key=lambda entry: (-entry.uncertainty, not entry.opinions, entry.row_id))

    def entries(self) -> list[Entry]:
        """Return all rows, those that are not decided first, the most uncertain first; rows that opinions divide before those
        that nobody scored."""
        last = self.decisions.last()
        known = [replace(entry, decision=last.get(entry.row_id)) for entry in self._rows]
        return sorted(known, key=lambda entry: entry.decided)

    def entry(self, word: str) -> Entry:
        """Return the row with this id, or the only one whose id begins like this.

        Raises:
            NotFoundError: there is none, or several.
        """
        entries = self.entries()
        found = [one for one in entries if one.row_id == word] or [
            one for one in entries if len(word) >= _SHORTEST and one.row_id.startswith(word)
        ]
        if len(found) != 1:
            what = f"{len(found)} rows begin like this" if found else "no row of the queue has this id"
            raise NotFoundError(what, word, "`clawpipe review list` shows them; name the same --config")
        return found[0]

    def is_there(self, entry: Entry) -> bool:
        """Whether the dataset of a row is still there; one of which rows were forgotten has another in its place."""
        return self.store.has(entry.dataset)

    def text(self, entry: Entry) -> Row:
        """Return what a row says: a trajectory without its tokens, or the sides of a pair."""
        return next(self._texts(entry.dataset, [entry.row_id]))

    def _found(self, said: Mapping[str, Sequence[Opinion]]) -> Iterator[Entry]:
        for ref in (*self.candidates.trajectories, *self.candidates.pairs):
            names = {row["row_id"]: row for row in _narrow(self.store, ref)}
            fresh = self._judged(ref, said, list(names)) if ref.name == "trajectories" and self.scorers else {}
            for name, row in names.items():
                opinions = [*said.get(name, ()), *fresh.get(name, ())]
                yield Entry(**row, kind=_KINDS[ref.name], dataset=ref, opinions=opinions)

    def _judged(self, ref: DatasetRef, said: Mapping[str, Sequence[Opinion]], names: Sequence[str]) -> dict[str, list[Opinion]]:
        """Return what the scorers say of the rows that none of them has scored."""
        own = {scorer.name for scorer in self.scorers}
        open_ = [name for name in names if own.isdisjoint(one.scorer for one in said.get(name, ()))]
        found: dict[str, list[Opinion]] = {}
        for start in range(0, len(open_), _BATCH):
            found |= said_by(self.scorers, list(self._texts(ref, open_[start : start + _BATCH])))
        return found

    def _texts(self, ref: DatasetRef, names: Sequence[str]) -> Iterator[Row]:
        column = _IDS[ref.name]
        whole = [name for name in schema_of(ref.name).names if name not in _STREAMS]
        wanted = whole if ref.name == "trajectories" else [column, *_OF_PAIR]
        for file in dataset_files(self.store, ref):
            table = conformed(pq.read_table(file, columns=_there(file, wanted)), schema_of(ref.name)).select(wanted)
            yield from table.filter(pc.is_in(table[column], value_set=pa.array(names, pa.string()))).to_pylist()  # pyright: ignore[reportAttributeAccessIssue]  # made at run time


def talk_of(entry: Entry, row: Row) -> list[Exchange]:
    """Return the main turns of a conversation; none of a pair."""
    return exchanges_of(row) if entry.kind == "conversation" else []


def parts_of(entry: Entry, row: Row) -> dict[str, list[Row]]:
    """Return the messages of a row by the name of the part that they are in; a conversation has one part without a name."""
    return {"": row["messages"]} if entry.kind == "conversation" else {name: row[name] for name in _OF_PAIR}


def _narrow(store: Store, ref: DatasetRef) -> Iterator[Row]:
    columns = [_IDS[ref.name], "source", "session_id", "user_id"]
    for file in dataset_files(store, ref):
        for row in pq.read_table(file, columns=_there(file, columns)).to_pylist():
            yield {
                "row_id": row[columns[0]],
                "source": row.get("source", "imported"),
                "session": row.get("session_id"),
                "user": row.get("user_id"),
            }


def _there(file: object, columns: Iterable[str]) -> list[str]:
    present = set(pq.read_schema(file).names)
    return [name for name in columns if name in present]
