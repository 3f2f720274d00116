"""Trace a session, a user or a row to every dataset with a row of it, and to every model that was trained on one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.replaced import replaced, successor
from clawpipe.data.forgotten.find import Findings, Hits, find
from clawpipe.data.forgotten.subject import Subject, session_of
from clawpipe.data.forgotten.tombstones import SeenBy, read_tombstones
from clawpipe.errors import ClawpipeError
from clawpipe.record.lineage.descent import Made, learners, learnt_by
from clawpipe.record.nights.files import list_nights
from clawpipe.record.nights.status import read_status
from clawpipe.record.registry.tracking import Tracking

TRAINING_DATASETS = ("samples", "preference_pairs")  # datasets that trainers read


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HoldingDataset(_Report):
    """A dataset with rows of the subject."""

    name: str
    digest: str
    rows: int
    of: int = Field(description="rows of the whole dataset")


class NightRows(_Report):
    """The use of the subject's rows in one step of a night."""

    night: str
    step: str
    did: Literal["chosen to train on", "held out", "left out"]
    rows: int
    reasons: dict[str, int] = Field(default_factory=dict, description="why rows were left out, with their numbers")


class UnregisteredModel(_Report):
    """A model that was trained on the subject's rows, but is not a registered version."""

    digest: str
    night: str | None


class OriginFile(_Report):
    """A source file of the rows; clawpipe does not change it."""

    file: str
    lines: list[int]


class Exposure(_Report):
    """The report of `clawpipe trace --session --json`: the datasets with the rows, and the models trained on them."""

    session: str | None
    user: str | None
    trajectory: str | None = None
    source: str | None = None
    text: str | None = None
    key: str | None = None
    keys: list[str] = Field(default=[], description="keys of the gateway with which rows of these sessions were captured")
    found: bool = Field(description="something names it, or did when it was forgotten; a mistyped id is named by nothing")
    sessions: list[str] = Field(description="sessions that go along: a user's, and those that go on from one that goes")
    shared: list[str] = Field(default=[], description="sessions with rows of other users, which stay; the user's own go")
    trajectories: int
    datasets: list[HoldingDataset]
    damaged: list[str] = Field(description="name/digest of datasets that cannot be read")
    nights: list[NightRows]
    models: list[SeenBy]
    adapters: list[UnregisteredModel]
    origins: list[OriginFile]
    forgotten: str | None = Field(description="date on which it was forgotten; `models` are those that were known then, too")


@dataclass(frozen=True)
class Exposed:
    """An exposure with the rows themselves."""

    findings: Findings
    models: list[SeenBy]
    adapters: dict[str, Made]


def exposure(home: Home, subject: Subject) -> Exposure:
    """Search for a subject, without changes.

    Raises:
        DataError: the list of tombstones or of replacements is damaged.
        BusyError: the MLflow server or the shared store does not answer.
    """
    return as_exposure(home, subject, expose(home, open_store(home), subject))


def expose(home: Home, store: Store, subject: Subject) -> Exposed:
    """Search like `exposure`, and return the rows, too; raises the same errors."""
    findings = find(store, subject)
    training_datasets = {hit.ref.digest: hit for hit in findings.hits if hit.ref.name in TRAINING_DATASETS}
    made = learners(home, training_datasets)
    registered = list(_registered(home, store, made, training_datasets))
    policies = {policy for _, policy in registered}
    adapters = {digest: one for digest, one in made.items() if digest not in policies}
    return Exposed(findings, [model for model, _ in registered], adapters)


def as_exposure(home: Home, subject: Subject, exposed: Exposed) -> Exposure:
    stone, found = read_tombstones(home).stone(subject), exposed.findings
    ever = bool(stone and (stone.trajectories or stone.replaced))
    before = {model.uri: model for model in (stone.models if stone else ())}
    models = before | {model.uri: model for model in exposed.models}
    return Exposure(
        **asdict(subject),
        found=bool(found.hits) or ever,
        sessions=sorted({*map(session_of, found.sessions - found.shared)} - {subject.session}),
        shared=sorted(set(map(session_of, found.sessions & found.shared))),
        keys=sorted(found.keys - {""}),
        trajectories=len(found.trajectories),
        datasets=[HoldingDataset(name=hit.ref.name, digest=hit.ref.digest, rows=hit.count, of=hit.ref.rows) for hit in found.hits],
        damaged=[f"{ref.name}/{ref.digest}" for ref in found.damaged],
        nights=list(_nights(home, found.hits)),
        models=list(models.values()),
        adapters=[UnregisteredModel(digest=one.digest, night=one.night) for one in exposed.adapters.values()],
        origins=[OriginFile(file=file, lines=sorted(lines)) for file, lines in sorted(found.origins.items())],
        forgotten=stone.date if stone else None,
    )


def exposure_lines(found: Exposure) -> Iterator[str]:
    """Yield the lines of an exposure for a person."""
    if found.forgotten:
        yield f"forgotten on {found.forgotten}"
    if found.session and found.keys:
        yield f"captured with the key{'s' if len(found.keys) > 1 else ''} {', '.join(found.keys)}"
    if found.sessions:
        sessions = f"sessions of {found.user}" if found.user else f"sessions that go on from {found.session}"
        yield f"{sessions}, which go along: {', '.join(found.sessions)}"
    if found.shared:
        yield f"sessions with rows of other users, which stay: {', '.join(found.shared)}"
    rows = sum(one.rows for one in found.datasets)
    yield f"{found.trajectories} trajectories, {rows} rows in {len(found.datasets)} datasets"
    yield from (f"  {one.name} {one.digest}: {one.rows} of {one.of} rows" for one in found.datasets)
    yield from (f"  {one}: damaged, so nobody knows" for one in found.damaged)
    yield from map(night_line, found.nights)
    yield from (f"learned from it: {model.name}@{model.version} (night {model.night}), {model.rows} rows" for model in found.models)
    yield from (f"learned from it, unregistered: {one.digest} (night {one.night})" for one in found.adapters)
    for one in found.origins:
        yield f"read from {one.file}, lines {', '.join(map(str, one.lines[:5]))}" + (", ..." if len(one.lines) > 5 else "")


def night_line(one: NightRows) -> str:
    """Return what a night did with the rows, for a person."""
    why = ", ".join(f"{reason} ({rows})" if len(one.reasons) > 1 else reason for reason, rows in one.reasons.items())
    rows = "1 row" if one.rows == 1 else f"{one.rows} rows"
    return f"night {one.night}: {rows} {one.did} by {one.step}" + (f": {why}" if why else "")


def named_by_nothing(found: Exposure) -> str:
    """Return the message about an id that no row names, which may be mistyped."""
    if found.text:
        return f"Nothing says {found.text!r}: is it spelt as it was said?"
    named = {"session": found.session, "user": found.user, "row": found.trajectory, "file": found.source}
    return "".join(f"Nothing names the {kind} {name}: is it right?" for kind, name in named.items() if name)


def _nights(home: Home, hits: Iterable[Hits]) -> Iterator[NightRows]:
    """Yield what nights did with the rows that were found, night by night, in the order of their steps."""
    store = open_store(home)
    taken, by_digest = replaced(store), {hit.ref.digest: hit for hit in hits}
    for night in list_nights(home):
        try:
            steps = read_status(home, night).steps
        except ClawpipeError:
            continue
        for step in steps:
            for role, ref in step.artifacts.items():
                hit, did = by_digest.get(successor(taken, ref.digest)), _done(role, ref.name)
                if hit and did:
                    reasons = _reasons(store, hit) if did == "left out" else {}
                    yield NightRows(night=night, step=step.name, did=did, rows=hit.count, reasons=reasons)


def _done(role: str, name: str) -> Literal["chosen to train on", "held out", "left out"] | None:
    if role == "output" and name in TRAINING_DATASETS:
        return "chosen to train on"
    return "held out" if role == "heldout" else "left out" if role == "quarantine" else None


def _reasons(store: Store, hit: Hits) -> dict[str, int]:
    """Return the first reason of each quarantined row, with their number."""
    found: Counter[str] = Counter()
    for number, file in enumerate(dataset_files(store, hit.ref)):
        reasons = pq.read_table(file, columns=["reasons"])["reasons"]
        found.update(reasons[row][0].as_py() for row in hit.rows.get(number, ()))
    return dict(found)


def _registered(home: Home, store: Store, made: Mapping[str, Made], hits: Mapping[str, Hits]) -> Iterator[tuple[SeenBy, str]]:
    """Yield the registered versions that were trained on these rows, and the digests of their policies."""
    tracking = Tracking.of(home, "none")
    if not tracking.exists:
        return
    from clawpipe.record.registry.forgetting import registered_versions, training_datasets_of  # loads MLflow

    taken = replaced(store)
    learnt = learnt_by(made, taken, hits)
    for info, datasets in registered_versions(tracking):
        own = {successor(taken, digest) for digest in training_datasets_of(datasets)}
        taught = hits.keys() & (own | learnt[info.policy.digest])
        if info.policy.digest in made or taught:
            rows = sum(hits[digest].count for digest in taught)
            yield SeenBy(name=info.name, version=info.version, night=info.night, rows=rows), info.policy.digest
