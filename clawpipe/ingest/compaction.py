"""Many runs of ingest leave many small datasets: they are joined, so that a night opens few files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from pydantic import BaseModel, ConfigDict

from clawpipe.ingest.memory import Memory, logs, memory_path, save
from clawpipe.store.datasets import dataset_ref
from clawpipe.store.home import Home
from clawpipe.store.locks import exclusive
from clawpipe.store.open import open_store
from clawpipe.store.parts import PART_ROWS
from clawpipe.store.refs import DatasetRef
from clawpipe.store.rewrite import compact

_MANY = 8  # fewer are not worth new digests, which make the steps that read them run again


class Joined(BaseModel):
    """Small datasets of one log, and the one that holds their rows: `log` and `name` say which."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    log: str
    name: str
    digests: list[str]
    into: str | None
    rows: int


def compact_imports(home: Home, *, dry_run: bool = False) -> list[Joined]:
    """Join the small datasets of each log of ingest wherever eight or more follow one another.

    The old ones stay where they are, for who names them; once nobody does, they are garbage. A digest keeps its meaning: nights and
    settings that name an old one go on reading its rows and no others.

    Raises:
        BusyError: data are being read in.
        DataError: a log or a dataset is damaged.
    """
    with exclusive(home.locks / "ingest.lock", f"ingest into the home {home.root}"):
        return [joined for name, memory in logs(home).items() for joined in _compact_log(home, name, memory, dry_run)]


def _compact_log(home: Home, log: str, memory: Memory, dry_run: bool) -> list[Joined]:
    store, done = open_store(home), list[Joined]()
    for name, digests in memory.datasets.items():
        for run in _runs([dataset_ref(store, name, digest) for digest in digests]):
            if len(run) >= _MANY:
                into = None if dry_run else compact(store, run).digest
                old = [ref.digest for ref in run]
                done.append(Joined(log=log, name=name, digests=old, into=into, rows=sum(ref.rows for ref in run)))
    if done and not dry_run:
        save(memory_path(home, log), _renamed(memory, done))
    return done


def _renamed(memory: Memory, done: Sequence[Joined]) -> Memory:
    """The log with each joined dataset in the place of those that it holds."""
    into = {(one.name, digest): one.into or digest for one in done for digest in one.digests}
    datasets = {
        name: list(dict.fromkeys(into.get((name, digest), digest) for digest in digests))
        for name, digests in memory.datasets.items()
    }
    return Memory(files=memory.files, datasets=datasets)


def _runs(refs: Sequence[DatasetRef]) -> Iterator[list[DatasetRef]]:
    """Datasets in order: small ones of one schema that follow one another together, any other alone."""
    for (small, _), run in groupby(refs, key=lambda ref: (ref.rows < PART_ROWS, ref.schema_version)):
        if small:
            yield list(run)
        else:
            yield from ([ref] for ref in run)
