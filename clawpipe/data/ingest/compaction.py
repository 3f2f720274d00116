"""Join the many small datasets that runs of ingest leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from pydantic import BaseModel, ConfigDict

from clawpipe.core.store.datasets import dataset_ref
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.parts import PART_ROWS
from clawpipe.core.store.refs import DatasetRef
from clawpipe.core.store.rewrite import compact
from clawpipe.data.ingest.intake.state import IngestState, ingesting, load, log_file, logs, save

_UNUSED: Mapping[str, frozenset[str]] = {}
_MANY = 8  # fewer are not worth new digests, which make the steps that read them run again


class Joined(BaseModel):
    """The small datasets (`digests`) of a log that were joined into one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    log: str
    name: str
    digests: list[str]
    into: str | None
    rows: int


def compact_imports(home: Home, used: Mapping[str, frozenset[str]] = _UNUSED, *, dry_run: bool = False) -> list[Joined]:
    """Join runs of eight or more small datasets in each log of ingest.

    The old datasets stay until nothing refers to them. A digest keeps its meaning: nights and settings that name an old dataset
    still read exactly its rows.

    Args:
        used: by digest, the models that nights have used a dataset for; only datasets that were used alike are joined.

    Raises:
        BusyError: an ingest is running.
        DataError: a log or a dataset is damaged.
    """
    with ingesting(home):
        return [joined for name in logs(home) for joined in _compact_log(home, name, used, dry_run)]


def _compact_log(home: Home, log: str, used: Mapping[str, frozenset[str]], dry_run: bool) -> list[Joined]:
    store, done, file = open_store(home), list[Joined](), log_file(home, log)
    state = load(file)
    for name, digests in state.datasets.items():
        for run in _runs([dataset_ref(store, name, digest) for digest in digests], used):
            if len(run) >= _MANY:
                into = None if dry_run else compact(store, run).digest
                old = [ref.digest for ref in run]
                done.append(Joined(log=log, name=name, digests=old, into=into, rows=sum(ref.rows for ref in run)))
    if done and not dry_run:
        save(file, _renamed(state, done))
    return done


def _renamed(state: IngestState, done: Sequence[Joined]) -> IngestState:
    """Return the log with each joined dataset in the place of its parts."""
    into = {(one.name, digest): one.into or digest for one in done for digest in one.digests}
    datasets = {
        name: list(dict.fromkeys(into.get((name, digest), digest) for digest in digests))
        for name, digests in state.datasets.items()
    }
    parts = {one.into: [part for digest in one.digests for part in state.parts(digest)] for one in done if one.into}
    return state.model_copy(update={"datasets": datasets, "joined": {**state.joined, **parts}})


def _runs(refs: Sequence[DatasetRef], used: Mapping[str, frozenset[str]]) -> Iterator[list[DatasetRef]]:
    """Yield the datasets in order: runs of small ones with one schema that were used alike together, any other alone."""
    alike = groupby(refs, key=lambda ref: (ref.rows < PART_ROWS, ref.schema_version, used.get(ref.digest, frozenset())))
    for (small, *_), run in alike:
        if small:
            yield list(run)
        else:
            yield from ([ref] for ref in run)
