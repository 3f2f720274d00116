"""List a home's datasets with the nights that made them, and profile the contents of one."""

from __future__ import annotations

import datetime
import itertools
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, find_dataset, newest, stored_dataset
from clawpipe.core.store.duck import session
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import DatasetRef, ModelRef
from clawpipe.data.ingest.intake.state import logs
from clawpipe.errors import ClawpipeError
from clawpipe.record.nights.files import list_nights
from clawpipe.record.nights.status import NightStatus, StepEntry, read_status

_SHOWN = 8  # most frequent values shown per column
_SPLITTING = ("make_items", "hold_out")  # steps of which all but the role `heldout` is to learn from, as are those of rounds
_TEXTS = 200  # a column with more distinct values holds ids or prose


class Listed(BaseModel):
    """A dataset of the store."""

    model_config = ConfigDict(frozen=True)

    name: str
    digest: str
    rows: int
    bytes: int
    made: str = Field(description="time of storing, UTC")
    ingested: bool = Field(description="whether a log of `clawpipe ingest` names it")
    nights: list[str] = Field(description="nights with a step that made it or found it in the cache")


class Profile(Listed):
    """A dataset with its contents."""

    columns: JsonObject = Field(description="by column: counts of values; or min, median and max of numbers or lengths")
    filtered: dict[str, dict[str, int]] = Field(description="by night and step that made it: filtered rows by reason")
    beside: list[str] = Field(description="name/digest of the rows that the same ingest has rejected")


Naming = dict[str, list[str]]  # digests by the name of their datasets


@dataclass(frozen=True)
class _Makers:
    """What made each dataset, by digest: steps of nights, and logs of ingest."""

    nights: dict[str, list[tuple[str, StepEntry]]]
    logs: dict[str, list[Naming]]
    models: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, home: Home) -> _Makers:
        makers = cls(defaultdict(list), defaultdict(list))
        for night in list_nights(home):
            with suppress(ClawpipeError, OSError, ValueError):  # a damaged night is skipped
                makers._add_night(night, read_status(home, night))
        for state in logs(home).values():
            for digest in {digest for digests in state.datasets.values() for digest in digests}:
                makers.logs[digest].append(dict(state.datasets))
        return makers

    def _add_night(self, night: str, status: NightStatus) -> None:
        for step in status.steps:
            for digest in {ref.digest for ref in step.artifacts.values()}:
                self.nights[digest].append((night, step))
            self.models.update(ref.digest for ref in step.artifacts.values() if isinstance(ref, ModelRef))

    def knows(self, digest: str) -> bool:
        return digest in self.nights or digest in self.logs

    def is_to_learn_from(self, digest: str) -> bool:
        """Whether ingest or a night's learning made a dataset, and not only its measuring: held-out rows, and answers to them."""
        made = ((step.name, role) for _, step in self.steps(digest) for role, ref in step.artifacts.items() if ref.digest == digest)
        learning = any(name.startswith("round-") or (name in _SPLITTING and role != "heldout") for name, role in made)
        return digest in self.logs or learning

    def steps(self, digest: str) -> list[tuple[str, StepEntry]]:
        """Return (night, step) of all steps that made the dataset."""
        return self.nights.get(digest, [])

    def naming(self, digest: str) -> list[Naming]:
        return self.logs.get(digest, [])

    def listed(self, store: Store, ref: DatasetRef) -> Listed:
        directory = store.path(ref)
        made = datetime.datetime.fromtimestamp(directory.stat().st_mtime, datetime.UTC) if directory.exists() else None
        return Listed(
            name=ref.name,
            digest=ref.digest,
            rows=ref.rows,
            bytes=sum(entry["bytes"] for entry in store.manifest(ref.name, ref.digest)["files"]),
            made=made.isoformat(timespec="seconds") if made else "",
            ingested=bool(self.naming(ref.digest)),
            nights=list(dict.fromkeys(night for night, _ in self.steps(ref.digest))),
        )


class Catalogue(BaseModel):
    """The newest datasets of a store, and how many more there are."""

    model_config = ConfigDict(frozen=True)

    datasets: list[Listed]
    older: int = Field(description="those beyond the limit")
    hidden: int = Field(description="those that neither a night nor a log of ingest names, unless all were asked for")


def catalogue(
    home: Home, store: Store, name: str | None = None, *, everything: bool = False, limit: int | None = None
) -> Catalogue:
    """Return the newest datasets. Manifests of no others are read, since a store gets more with every night.

    Args:
        home: its nights and logs of ingest say what made each dataset.
        store: the store to list.
        name: only datasets of this name.
        everything: also those that neither a night nor a log of ingest names.
        limit: most to return; None returns all.

    Raises:
        DataError: a log of ingest is damaged.
        BusyError, ConfigError: the shared store does not answer.
    """
    makers = _Makers.of(home)
    stored = [one for one in store.names() if name in (None, one[0]) and one[1] not in makers.models]
    wanted = [one for one in stored if everything or makers.knows(one[1])]
    newest = sorted(wanted, key=lambda one: (_seconds(store, *one), *one), reverse=True)
    refs = (ref for one in newest if (ref := stored_dataset(store, *one)))
    found = [makers.listed(store, ref) for ref in itertools.islice(refs, limit)]
    older = 0 if limit is None or len(found) < limit else len(newest) - limit
    return Catalogue(datasets=found, older=older, hidden=len(stored) - len(wanted))


def named_dataset(home: Home, store: Store, word: str) -> DatasetRef:
    """Find a dataset like `find_dataset`. But a name alone means the newest one that is to learn from, if there are any: neither a
    shard, nor what a night holds out.

    Raises:
        NotFoundError: there is none, or several begin like this.
        DataError: a log of ingest is damaged.
    """
    named = [one for one in store.names() if one[0] == word]
    makers = _Makers.of(home) if named else _Makers({}, {})
    found = [digest for _, digest in named if makers.is_to_learn_from(digest)]
    refs = (ref for digest in found if (ref := stored_dataset(store, word, digest)))
    return newest(store, refs) or find_dataset(store, word)


def _seconds(store: Store, name: str, digest: str) -> int:
    """Return when an artifact was stored, in whole seconds; 0 if only the shared store has it."""
    try:
        return int((store.root / name / digest).stat().st_mtime)
    except OSError:
        return 0


def profile(home: Home, store: Store, ref: DatasetRef) -> Profile:
    """Return a dataset's profile. Raises like `catalogue`, and DataError if the dataset is missing or damaged."""
    files, makers = dataset_files(store, ref), _Makers.of(home)
    beside = [f"quarantine/{digest}" for log in makers.naming(ref.digest) for digest in log.get("quarantine", ())]
    return Profile(
        **makers.listed(store, ref).model_dump(),
        columns=_columns(store, files) if ref.rows else {},
        filtered={f"{night} {step.name}": step.filtered for night, step in makers.steps(ref.digest) if step.filtered},
        beside=beside if ref.name != "quarantine" else [],
    )


def samples(store: Store, ref: DatasetRef, count: int) -> list[Row]:
    """Return `count` rows spread over the dataset, in its order."""
    places = sorted({ref.rows * number // count for number in range(count)}) if ref.rows else []
    rows: list[Row] = []
    before = 0
    for file in dataset_files(store, ref):
        count = pq.read_metadata(file).num_rows
        if here := [place - before for place in places if before <= place < before + count]:
            rows += pq.read_table(file).take(here).to_pylist()
        before += count
    return rows


def _columns(store: Store, files: Sequence[Path]) -> JsonObject:
    with session(store, files) as duck:
        stored = _Rows(duck, [str(file) for file in files])
        found = {field.name: stored.column(field) for field in pq.read_schema(files[0])}
    return {name: profile for name, profile in found.items() if profile}


@dataclass(frozen=True)
class _Rows:
    """Rows of files, queried column by column."""

    duck: duckdb.DuckDBPyConnection
    files: list[str]

    def column(self, field: pa.Field) -> JsonObject:
        """Return counts of values, or a range; empty for a column whose values are all distinct or missing."""
        name, kind = f'"{field.name}"', field.type
        if pa.types.is_list(kind) and not pa.types.is_string(kind.value_type):
            return self._range(f"len({name})", " length")
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return self._range(name)
        return (
            {} if pa.types.is_struct(kind) else self._counts(f"array_to_string({name}, ', ')" if pa.types.is_list(kind) else name)
        )

    def _range(self, value: str, what: str = "") -> JsonObject:
        [(low, middle, high)] = self._ask(f"select min({value}), median({value}), max({value})")
        return {} if low is None else {f"min{what}": low, f"median{what}": middle, f"max{what}": high}

    def _counts(self, value: str) -> JsonObject:
        select, ending = f"select {value}::varchar, count(*)", f"group by 1 order by 2 desc, 1 limit {_TEXTS + 1}"
        counts = self._ask(select, f"where {value} is not null {ending}")
        return dict(counts[:_SHOWN]) if len(counts) <= _TEXTS and any(count > 1 for _, count in counts) else {}

    def _ask(self, select: str, ending: str = "") -> list[Any]:
        query = f"{select} from read_parquet($files, union_by_name = true) {ending}"
        return self.duck.execute(query, {"files": self.files}).fetchall()
