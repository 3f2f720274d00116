"""Collect garbage: artifacts without a reference from a kept night, a registered version, an import or a person's command, and
leftovers of nights."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.files import clear, read_manifest
from clawpipe.core.store.home import Home
from clawpipe.core.store.machines import VARIABLE as SHARED
from clawpipe.core.store.machines import shared_objects
from clawpipe.core.store.notes import BY_HAND, Notes
from clawpipe.core.store.open import open_store
from clawpipe.core.store.records import drop_dead_records
from clawpipe.core.store.refs import DatasetRef
from clawpipe.core.store.remote import VARIABLE, Remote
from clawpipe.core.store.replaced import replaced, successor
from clawpipe.data.curation.measures import NAME as MEASURES
from clawpipe.data.curation.partitions import NAME as PARTITIONS
from clawpipe.data.ingest.intake.state import log_files
from clawpipe.errors import ConfigError
from clawpipe.record.lineage.descent import ancestors
from clawpipe.record.nights.files import began, clear_leftovers, has_verdict, list_nights, run_dir
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.removal.forget import SETTLING_SECONDS, lock_home
from clawpipe.record.removal.growing import Stays, old_reports, remove_report, size_of, staying
from clawpipe.record.removal.screenshots import unused_screenshots

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from clawpipe.record.removal.versions import Superseded

_DIGEST = re.compile(rb"[0-9a-f]{64}")


class Removed(BaseModel):
    """An artifact without references."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    digest: str
    bytes: int = Field(description="of its files; those that are linked elsewhere free nothing")


class RemovedFiles(BaseModel):
    """Files in MLflow: of a version that nobody can come back to, or of the run of a night that left no version to keep."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    of: str = Field(description="models:/NAME/VERSION, or runs:/ID")
    night: str
    bytes: int


class Collection(BaseModel):
    """The report of `clawpipe gc --json`: what was, or would be, removed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dry_run: bool
    nights: list[str] = Field(description="those that are kept")
    artifacts: list[Removed]
    kept: int = Field(description="artifacts that stay")
    bytes: int
    staging: int = Field(description="directories of writers that were killed")
    records: int = Field(description="step records of which the artifacts are gone")
    work: bool = Field(description="resumable state, which no unfinished night wants")
    remote: list[Removed] = Field(description="artifacts of the shared store; none unless it was asked for")
    files: list[RemovedFiles] = Field(default=[], description="files of versions and runs in MLflow; none unless it was asked for")
    reports: list[str] = Field(default=[], description="nights whose report and logs go; none unless it was asked for")
    screenshots: list[Path] = Field(default=[], description="pictures of pages that no stored row names")
    stays: list[Stays] = Field(default=[], description="what is never collected")


def collect(
    home: Home,
    keep_nights: int | None = None,
    *,
    dry_run: bool = False,
    remote: bool = False,
    keep_versions: int | None = None,
    keep_reports: int | None = None,
    settling: float = SETTLING_SECONDS,
) -> Collection:
    """Remove garbage. Artifacts that the shared store holds, too, only leave this home's directory, unless `remote` is True.

    Args:
        home: the home with the store.
        keep_nights: number of latest nights that keep their artifacts; None keeps all. Nights without a verdict are always kept.
            What a person's command made stays if it is newer than the first of these nights. The records and reports of all
            nights stay.
        dry_run: remove nothing.
        remote: remove from the shared store, too. Only references of this home count: artifacts that only another home refers
            to are removed.
        keep_versions: number of latest versions of each model that keep their files; None keeps all. What stays in any case:
            see `clawpipe.record.removal.versions`.
        keep_reports: number of latest nights that keep their report and logs; None keeps all.
        settling: seconds for which a new artifact stays without references.

    Raises:
        BusyError: a night is running, data are being read in, or the MLflow server or the shared store does not answer.
        ConfigError: `remote` without a shared store.
    """
    store = open_store(home)
    shared = _required(store) if remote else None
    with ExitStack() as locks:
        lock_home(home, locks)
        registry = _registry_held(home, locks) if keep_versions is not None and not dry_run else None
        nights = kept_nights(home, keep_nights)
        old = _superseded(home, keep_versions)
        by_hand = Notes(store, BY_HAND).since(_oldest_kept(home, keep_nights, settling))
        wanted = {digest for note in by_hand for digest in (note.dataset.digest, *note.dataset.parents)}
        roots = _roots(home, store, nights, old, wanted)
        garbage, stay = _garbage(store, roots, settling)
        unfinished = [night for night in nights if not has_verdict(home, night)]
        collection = Collection(
            dry_run=dry_run,
            nights=nights,
            artifacts=garbage,
            kept=stay,
            bytes=sum(one.bytes for one in garbage),
            staging=0,
            records=0,
            work=home.work.exists() and not unfinished,
            remote=_shared_garbage(shared, roots, settling) if shared else [],
            files=_files(home, old),
            reports=old_reports(home, keep_reports),
            screenshots=unused_screenshots(home, store, {one.digest for one in garbage}, settling),
            stays=list(staying(home)),
        )
        if dry_run:
            return collection
        if shared:
            shared.sweep(settling)
        if registry and old:
            from clawpipe.record.removal.versions import remove_files

            remove_files(registry, Tracking.of(home, "none"), old)
        return _remove(home, store, collection)


def _required(store: Store) -> Remote:
    if shared_objects():
        what = "other machines of this home may refer to what this one does not know"
        raise ConfigError(what, SHARED, "leave `--remote` out")
    if store.remote is None:
        raise ConfigError("this home has no shared store", fix=f"set {VARIABLE}, or leave `--remote` out")
    return store.remote


def kept_nights(home: Home, count: int | None) -> list[str]:
    """Return the latest `count` nights and those without a verdict, oldest first."""
    nights = list_nights(home)
    latest = nights if count is None else nights[len(nights) - min(count, len(nights)) :]
    return [night for night in nights if night in latest or not has_verdict(home, night)]


def _oldest_kept(home: Home, count: int | None, settling: float) -> float:
    """Return since when what a person's command made stays, in seconds since 1970: since the first of the latest `count` nights
    began, and for as long as anything new does."""
    nights, new = list_nights(home), time.time() - settling
    if count == 0:
        return new
    return 0.0 if count is None or count >= len(nights) else min(began(home, nights[-count]).timestamp(), new)


def _registry_held(home: Home, locks: ExitStack) -> MlflowClient | None:
    """Hold the registry until `locks` are given back: what is chosen now must not be promoted before it is gone."""
    tracking = Tracking.of(home, "none")
    if not tracking.exists:
        return None
    from clawpipe.record.registry.client import changes  # loads MLflow

    return locks.enter_context(changes(tracking))


def _superseded(home: Home, keep: int | None) -> Superseded | None:
    tracking = Tracking.of(home, "none")
    if keep is None or not tracking.exists:
        return None
    from clawpipe.record.removal.versions import superseded  # loads MLflow

    return superseded(home, tracking, keep, set(list_nights(home)))


def _files(home: Home, old: Superseded | None) -> list[RemovedFiles]:
    if old is None:
        return []
    from clawpipe.record.removal.versions import files_of

    return [RemovedFiles(of=of, night=night, bytes=size) for of, night, size in files_of(Tracking.of(home, "none"), old)]


def _roots(home: Home, store: Store, nights: Iterable[str], old: Superseded | None, wanted: set[str]) -> set[str]:
    """Return every digest that is wanted or that a kept record names, and its replacements."""
    files = [file for night in nights for file in run_dir(home, night).glob("*.json")]
    records = [*(file.read_bytes() for file in files), *(log.read() or b"" for log in log_files(home))]
    named = {found.decode() for record in records for found in _DIGEST.findall(record)} | wanted | _registered(home, old)
    taken = replaced(store)
    named |= {successor(taken, digest) for digest in named}
    empty = (
        note for note in Notes(store, PARTITIONS) if not note.dataset.rows
    )  # empty results are in no dataset, and cost nothing
    return named | {note.dataset.digest for note in (*Notes(store, MEASURES), *empty) if named.issuperset(note.dataset.parents)}


def _registered(home: Home, old: Superseded | None) -> set[str]:
    """Return the digests of registered policies and of what taught them. Of a version whose files go only the ancestors of one
    that stays keep what taught them: forgetting has to know what the champion learned from.
    """
    tracking = Tracking.of(home, "none")
    if not tracking.exists:
        return set()
    from clawpipe.record.registry.forgetting import registered_versions  # loads MLflow

    versions = list(registered_versions(tracking))
    gone = {info.uri for info in old.taken} if old else set[str]()
    stay = [info.policy for info, _ in versions if info.uri not in gone and not info.files_removed]
    taught = ancestors(home, stay) if len(stay) < len(versions) else set[str]()
    named = {policy.digest for policy in stay}
    return named | {digest for info, datasets in versions if info.policy.digest in named | taught for digest in datasets.values()}


def _garbage(store: Store, roots: set[str], settling: float) -> tuple[list[Removed], int]:
    """Return the artifacts without references, and the number that stay. Artifacts linked from one that stays are kept: they are
    free.
    """
    now, everything = time.time(), list(store.here())
    named = [one for one in everything if one[1] in roots]
    shared = {inode for one in named for inode in _inodes(store, *one)}
    garbage = [
        one
        for one in everything
        if one[1] not in roots
        and now - (store.root / one[0] / one[1]).stat().st_mtime >= settling
        and not _is_linked(_inodes(store, *one), shared)
    ]
    removed = [Removed(name=name, digest=digest, bytes=size_of(store.root / name / digest)) for name, digest in garbage]
    return removed, len(everything) - len(garbage)


def _shared_garbage(remote: Remote, roots: set[str], settling: float) -> list[Removed]:
    """Return the artifacts without references in the shared store, which has no links."""
    return [
        Removed(name=name, digest=digest, bytes=size)
        for (name, digest), size in sorted(remote.artifact_sizes().items())
        if digest not in roots and remote.age(name, digest) >= settling
    ]


def _is_linked(inodes: Sequence[int], shared: set[int]) -> bool:
    return bool(inodes) and all(inode in shared for inode in inodes)


def _inodes(store: Store, name: str, digest: str) -> list[int]:
    """Return the inodes of an artifact's files; none if a file or the manifest is missing."""
    directory = store.root / name / digest
    try:
        return [(directory / file["path"]).stat().st_ino for file in read_manifest(directory)["files"]]
    except (OSError, ValueError, KeyError):
        return []


def _remove(home: Home, store: Store, collection: Collection) -> Collection:
    for one in collection.artifacts:
        store.evict(DatasetRef(name=one.name, digest=one.digest, rows=0))
    for one in collection.remote:
        store.remove(DatasetRef(name=one.name, digest=one.digest, rows=0))
    for kind in (MEASURES, PARTITIONS):
        Notes(store, kind).drop_dead()
    Notes(store, BY_HAND).drop_dead(replaced(store))
    for night in list_nights(home):
        clear_leftovers(home, night)
    for night in collection.reports:
        remove_report(home, night)
    for picture in collection.screenshots:
        picture.unlink(missing_ok=True)
    if collection.work:
        clear(home.work)
    return collection.model_copy(update={"staging": store.sweep(), "records": drop_dead_records(home)})
