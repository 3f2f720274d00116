"""Trace a model version back to its training trajectories, their task items, and the lines of their source files.

The lineages of the nights name the training datasets of an adapter; the datasets name trajectories, items, and the owners of
imported trajectories. `clawpipe.record.lineage.exposure` traces the other way, from a session or a user to models.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, dataset_ref
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import ModelRef
from clawpipe.errors import DataError, NotFoundError
from clawpipe.play.recorded.notes import notes_of
from clawpipe.record.lineage.record import Lineage, Node, read_lineage
from clawpipe.record.lineage.traced import Dataset, Item, Reviewed, Source, Trace, TracedModel, Training, VersionTrace
from clawpipe.record.nights.brought import look_for_nights
from clawpipe.record.nights.files import list_nights, run_dir

_TRAJECTORIES = {"samples": ["trajectory_id"], "preference_pairs": ["chosen_id", "rejected_id"]}  # columns with trajectory ids


class Version(Protocol):
    """The required fields of a registered version; the registry's `ModelVersionInfo` has them."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def aliases(self) -> Sequence[str]: ...
    @property
    def night(self) -> str: ...
    @property
    def policy(self) -> ModelRef: ...
    @property
    def deployed(self) -> Sequence[BaseModel]: ...


class _Graph:
    """The lineages of a home's nights as one graph; other nights are read only if the first one lacks a node."""

    def __init__(self, home: Home, night: str) -> None:
        self._lineages = _lineages(home, night)
        self._made: dict[str, tuple[Lineage, Node]] = {}
        self._named: dict[str, Node] = {}

    def maker(self, digest: str) -> tuple[Lineage, Node] | None:
        """Return the lineage that made `digest`, and its node; None if no night of this home made it, as for a base model."""
        while digest not in self._made and (lineage := next(self._lineages, None)):
            self._add(lineage)
        return self._made.get(digest)

    def node(self, digest: str) -> Node | None:
        made = self.maker(digest)
        return made[1] if made else self._named.get(digest)

    def parents(self, digest: str) -> list[str]:
        made = self.maker(digest)
        return made[0].parents(digest) if made else []

    def ancestors(self, digest: str) -> list[str]:
        """Return all ancestors of `digest`, nearest first."""
        found: dict[str, None] = {}
        ahead = deque(self.parents(digest))
        while ahead:
            nearest = ahead.popleft()
            if nearest not in found:
                found[nearest] = None
                ahead += self.parents(nearest)
        return list(found)

    def _add(self, lineage: Lineage) -> None:
        """Add a lineage; what one that was added before says of an artifact stays."""
        for node in lineage.nodes:
            self._named.setdefault(node.id, node)
            if node.step or node.kind == "base":
                self._made.setdefault(node.id, (lineage, node))


def trace(home: Home, night: str, adapter: str) -> Trace:
    """Trace an adapter.

    Args:
        home: the home with the store and the nights.
        night: the night that trained the adapter.
        adapter: its digest.

    Raises:
        NotFoundError: the night has no lineage, or one without this adapter.
        DataError: a lineage is damaged.
    """
    look_for_nights(home)
    graph, store = _Graph(home, night), open_store(home)
    made = graph.maker(adapter)
    if made is None:
        raise NotFoundError(f"no night of this home trained {adapter[:8]}", str(home.runs), "trace it in the home of its night")
    way = [adapter, *graph.ancestors(adapter)]
    trainings = [training for digest in way for training in _trainings(graph, store, digest)]
    nodes = [node for node in map(graph.node, reversed(way)) if node]
    datasets = [_dataset(node) for node in nodes if node.kind == "dataset"]
    wanted = {item for training in trainings for item in training.trajectories or ()}
    items, lost = _items(store, [dataset for dataset in datasets if dataset.name == "task_items"], wanted)
    lost += [training.samples for training in trainings if training.trajectories is None]
    taught = {name for training in trainings for used in (training.trajectories or {}).values() for name in used}
    base = next((_dataset(node) for node in nodes if node.kind == "base"), None)
    rows = [dataset for dataset in datasets if dataset.name == "trajectories"]
    compressed = _compressed(store, rows, taught)
    return Trace(
        adapter=adapter,
        choice=made[0].choice,
        base=base,
        trainings=trainings,
        datasets=datasets,
        items=items,
        sources=_sources(store, rows, taught),
        reviews=_reviews(store, [dataset for dataset in datasets if dataset.name == "reviews"], taught),
        compressed=compressed,
        lost=lost,
        counts=_counts(trainings, wanted) | ({"shortened": len(compressed)} if compressed else {}),
    )


def trace_version(home: Home, version: Version) -> JsonObject:
    """Return the `VersionTrace` of a registered version as JSON; raises the errors of `trace`."""
    model = TracedModel(
        name=version.name,
        version=version.version,
        aliases=list(version.aliases),
        night=version.night,
        policy_version=version.policy.policy_version,
        deployed=[record.model_dump(mode="json") for record in version.deployed],
    )
    found = trace(home, version.night, version.policy.digest)
    return VersionTrace(model=model, **found.model_dump()).model_dump(mode="json")


def _lineages(home: Home, night: str) -> Iterator[Lineage]:
    """Yield the lineage of `night`, which must exist, then those of the other nights, the newest first."""
    yield read_lineage(run_dir(home, night))
    for other in reversed(list_nights(home)):
        if other != night:
            try:
                yield read_lineage(run_dir(home, other))
            except NotFoundError:
                continue


def _trainings(graph: _Graph, store: Store, digest: str) -> Iterator[Training]:
    made = graph.maker(digest)
    if made is None or made[1].kind != "model":
        return
    lineage, node = made
    for samples in filter(None, map(graph.node, lineage.parents(digest))):
        if samples.name in _TRAJECTORIES:
            used = _used(store, samples)
            yield Training(night=lineage.night, step=node.step or "", adapter=digest, samples=_dataset(samples), trajectories=used)


def _used(store: Store, samples: Node) -> dict[str, list[str]] | None:
    """Return trajectory ids by item id, in stored order."""
    columns = _TRAJECTORIES[samples.name]
    rows = _rows(store, samples.name, samples.id, ["item_id", *columns])
    if rows is None:
        return None
    used: dict[str, list[str]] = {}
    for row in rows:
        used.setdefault(row["item_id"], []).extend(row[column] for column in columns)
    return {item: list(dict.fromkeys(names)) for item, names in used.items()}


def _items(store: Store, datasets: Iterable[Dataset], wanted: set[str]) -> tuple[dict[str, Item], list[Dataset]]:
    items: dict[str, Item] = {}
    lost = []
    for dataset in datasets:
        rows = _rows(store, dataset.name, dataset.digest, ["item_id", "environment", "identity", "messages"], wanted)
        if rows is None:
            lost.append(dataset)
        items |= {row["item_id"]: _item(row) for row in rows or ()}
    return items, lost


def _sources(store: Store, datasets: Iterable[Dataset], wanted: set[str]) -> dict[str, Source]:
    """Return the sources of the wanted trajectories, by id; lost datasets are skipped."""
    found: dict[str, Source] = {}
    for dataset in datasets:
        for row in _rows(store, dataset.name, dataset.digest, ["trajectory_id", "origin", "session_id", "user_id"], wanted) or ():
            origin, session, user = row.get("origin"), row.get("session_id"), row.get("user_id")
            if origin or session or user:
                place = origin or dict.fromkeys(("format", "file", "line"))
                found[row["trajectory_id"]] = Source(**place, session=session, user=user)
    return found


def _reviews(store: Store, datasets: Iterable[Dataset], taught: set[str]) -> dict[str, Reviewed]:
    """Return the decisions about the trajectories that taught, by id."""
    found: dict[str, Reviewed] = {}
    for dataset in datasets:
        for row in _rows(store, dataset.name, dataset.digest, ["row_id", "verdict", "by", "at"], taught) or ():
            found[row["row_id"]] = Reviewed(verdict=row["verdict"], by=row["by"], at=row["at"])
    return found


def _compressed(store: Store, datasets: Iterable[Dataset], wanted: set[str]) -> dict[str, JsonObject]:
    """Return what was cut of each wanted trajectory that was shortened; not the users' words in it, which are the dataset's."""
    found: dict[str, JsonObject] = {}
    for dataset in datasets:
        rows = _rows(store, dataset.name, dataset.digest, ["trajectory_id", "extra"], wanted) or ()
        found |= {name: {key: value for key, value in note.items() if key != "asked"} for name, note in notes_of(rows)}
    return found


def _item(row: Row) -> Item:
    question = row["messages"][-1]["content"] if row["messages"] else ""
    return Item(item_id=row["item_id"], environment=row["environment"], identity=row["identity"], question=question or "")


def _rows(store: Store, name: str, digest: str, columns: list[str], wanted: Collection[str] | None = None) -> Iterator[Row] | None:
    """Return the rows of a dataset, or those whose first column is wanted; None if it is missing or damaged. Missing columns are
    left out.
    """
    try:
        files = dataset_files(store, dataset_ref(store, name, digest))
    except DataError:
        return None
    return (row for file in files for row in _table(file, columns, wanted).to_pylist())


def _table(file: Path, columns: list[str], wanted: Collection[str] | None) -> pa.Table:
    with pq.ParquetFile(file) as parquet:
        names = parquet.schema_arrow.names
        table = parquet.read(columns=[column for column in columns if column in names], use_threads=False)
    if wanted is None:
        return table
    return table.filter(pa.array([name in wanted for name in table[columns[0]].to_pylist()], pa.bool_()))


def _counts(trainings: list[Training], items: set[str]) -> dict[str, int]:
    names = {name for training in trainings for used in (training.trajectories or {}).values() for name in used}
    samples = sum(training.samples.rows or 0 for training in trainings)
    return {"trainings": len(trainings), "samples": samples, "trajectories": len(names), "items": len(items)}


def _dataset(node: Node) -> Dataset:
    return Dataset(name=node.name, digest=node.id, rows=node.rows)
