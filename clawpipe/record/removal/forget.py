"""Forget a session, a user or rows: rewrite every dataset without its rows, delete the old bytes, and report the models trained on
them.

The order makes a kill harmless: the tombstone is written first, new datasets are complete before old ones are deleted, these are
deleted when nothing else is left that is found by their rows, and another run does the rest.
"""

from __future__ import annotations

import datetime
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from pydantic import Field

from clawpipe.core.contracts.text import EDITED
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.files import exclusive
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.records import drop_dead_records
from clawpipe.core.store.replaced import note_replaced
from clawpipe.core.store.rewrite import without_rows
from clawpipe.core.system import faults
from clawpipe.data.forgotten.find import Findings, find
from clawpipe.data.forgotten.subject import Subject, pattern_of, session_of
from clawpipe.data.forgotten.tombstones import Tombstone, Tombstones, read_tombstones, write_tombstones
from clawpipe.data.ingest.intake.state import INGEST_LOCK, no_other_machine_ingests
from clawpipe.errors import ConfigError
from clawpipe.play.judging.exchanges import exchanges_of
from clawpipe.play.judging.judge_prompt import turn_prompt
from clawpipe.play.judging.votes import VoteStore, votes_file
from clawpipe.record.lineage.exposure import Exposed, Exposure, as_exposure, expose
from clawpipe.record.nights.locks import NIGHT_LOCK
from clawpipe.record.nights.machines import hold_machines
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.removal.beside import clean
from clawpipe.record.removal.captured import captured_of, forget_captured
from clawpipe.record.removal.erasure_check import clean_logs, remains_of, rows_of, traces_of
from clawpipe.record.removal.screenshots import unused_screenshots
from clawpipe.record.reviews.decisions import Decision
from clawpipe.record.reviews.open import every_decision, open_decisions

_JUDGED = ("messages", "tokens", "kinds", "turns", "source", "extra")  # columns of a conversation whose turns are judged
SETTLING_SECONDS = 3600.0  # who has just written something has yet to finish it, or to say what for


class Forgetting(Exposure):
    """The report of `clawpipe forget --json`."""

    dry_run: bool
    replaced: dict[str, str] = Field(default={}, description="digests of datasets: the one with the rows, the one without")
    reports: list[str] = Field(default=[], description="nights whose report was written anew")
    captured: int = Field(default=0, description="turns in the gateway's segments")
    votes: int = Field(default=0, description="judges' answers about turns, which may quote them")
    reviews: int = Field(default=0, description="decisions of people about rows, with the answers that they wrote")
    screenshots: int = Field(default=0, description="pictures of pages that no stored row names any more")
    logs: list[str] = Field(default=[], description="logs of which lines were removed")
    still_held: list[str] = Field(default=[], description="files that still hold the id or a long line of its text")


def forget(home: Home, subject: Subject, *, dry_run: bool = False, today: datetime.date | None = None) -> list[Forgetting]:
    """Forget a subject in this home and in those of its sweeps; return a result for each home with data of it, this one first.

    Args:
        home: the home with the data.
        subject: the subject to forget.
        dry_run: change nothing.
        today: the date of the tombstone; None takes the clock's.

    Raises:
        BusyError: a night or an ingest is running, or the MLflow server or the shared store does not answer.
        DataError: the list of what was forgotten, or of what was replaced, is damaged.
    """
    date = (today or datetime.date.today()).isoformat()
    others = [Home(path) for path in sorted(home.root.glob("sweeps/*/home-*")) if path.is_dir()]
    with ExitStack() as locks:
        hold_machines(home, locks)
        locks.enter_context(no_other_machine_ingests())
        for one in (home, *others):
            lock_home(one, locks)
            if not dry_run:
                open_store(one).sweep()  # this home must not bring back rows that another home has forgotten
        own = _forget(home, open_store(home), subject, dry_run, date)
        of_sweeps = [_forget(one, Store(one.store), subject, dry_run, date) for one in others]  # the shared store is done by then
    left = [file for file in own.still_held if not _is_gone(home, file)]  # some are gone with a sweep's rows
    own = own.model_copy(update={"still_held": left})
    return [own, *(result for result in of_sweeps if result.trajectories or result.datasets)]


def _is_gone(home: Home, file: str) -> bool:
    return Path(file).is_relative_to(home.root) and not Path(file).exists()


def lock_home(home: Home, locks: ExitStack) -> None:
    """Lock a home against nights and imports.

    Raises:
        BusyError: one is running.
    """
    for lock in (NIGHT_LOCK, INGEST_LOCK):
        locks.enter_context(exclusive(home.locks / lock, f"the home {home.root}"))


def _forget(home: Home, store: Store, subject: Subject, dry_run: bool, date: str) -> Forgetting:
    exposed = expose(home, store, subject)
    captured = captured_of(home, store, subject, exposed.findings)
    votes, reviews = _votes_of(home, store, exposed.findings), _reviewed(home, subject, exposed.findings)
    keys = (exposed.findings.keys - {""}) | captured.keys
    report = as_exposure(home, subject, exposed).model_dump() | {
        "dry_run": dry_run,
        "keys": sorted(keys),
        "captured": len(captured.turns),
        "votes": len(votes),
        "reviews": len(reviews),
    }
    report["found"] = report["found"] or bool(captured.turns) or bool(votes) or bool(reviews)
    if dry_run:
        return Forgetting.model_validate(report)
    subject = _of_one_key(subject, keys, others="" in exposed.findings.keys)
    traces = traces_of(store, subject, exposed.findings)
    taken = _note(home, store, subject, exposed, date)
    _mark_models(home, read_tombstones(home), subject, date)
    note_replaced(store, taken)
    faults.kill_point("forget.before_removal")
    stone = read_tombstones(home).stone(subject)
    assert stone is not None
    paths = pattern_of([subject.id, *map(session_of, exposed.findings.sessions)], joints="")
    reports = clean(home, store, paths, stone.replaced, bool(exposed.findings.hits))
    logs = clean_logs(home, traces)
    if votes:
        VoteStore.of(home).remove(votes)
    if reviews:
        open_decisions(home).remove({one.row_id for one in reviews})
    held = [str(path) for path in forget_captured(home, captured)]
    pictures = _remove_rows(home, store, exposed.findings)
    left = list(dict.fromkeys([*held, *remains_of(home, traces), *_shared_remains(store, subject)]))
    done = {
        "forgotten": stone.date,
        "replaced": taken,
        "reports": reports,
        "screenshots": len(pictures),
        "logs": logs,
        "still_held": left,
    }
    return Forgetting.model_validate(report | done)


def _remove_rows(home: Home, store: Store, found: Findings) -> list[Path]:
    """Remove the datasets with the rows, and what only these refer to. Returns the removed screenshots.

    This comes last: what lies outside of the store is found by the rows, also after a kill.
    """
    for ref in (*(hit.ref for hit in found.hits), *found.damaged):
        store.remove(ref)
    faults.kill_point("forget.after_removal")
    store.sweep()
    drop_dead_records(home)
    pictures = unused_screenshots(home, store)
    for picture in pictures:
        picture.unlink(missing_ok=True)
    return pictures


def _of_one_key(subject: Subject, keys: set[str], others: bool) -> Subject:
    """Return a session narrowed to the one key that it was captured with, so that the tombstone keeps nobody else from its id.

    Args:
        keys: with which sessions of the id were captured.
        others: whether rows that were not captured name the session, too.

    Raises:
        ConfigError: it was captured with several.
    """
    if not subject.session or subject.key:
        return subject
    if len(keys) > 1:
        what = f"sessions of {len(keys)} keys have this id: {', '.join(sorted(keys))}"
        raise ConfigError(what, subject.session, "say with --key whose is meant, once for each")
    return replace(subject, key=keys.pop()) if keys and not others else subject


def _votes_of(home: Home, store: Store, found: Findings) -> list[str]:
    """Return the keys of the votes on turns of the found trajectories; a turn may have been judged in a shorter one before."""
    if not votes_file(home).exists():
        return []
    rows = (row for hit in found.hits if hit.ref.name == "trajectories" for row in rows_of(store, hit, _JUDGED))
    subjects = {turn_prompt(turn).subject for row in rows for turn in exchanges_of(row)}
    votes = VoteStore.of(home).every()
    return [vote.key for vote in votes if found.trajectories.intersection(vote.trajectories) or vote.subject in subjects]


def _reviewed(home: Home, subject: Subject, found: Findings) -> list[Decision]:
    """Return the decisions about the found rows, and those in which a person wrote the text."""
    rows = {row.partition(EDITED)[0] for row in found.trajectories} | found.pairs
    word = subject.id if subject.kind == "text" else None
    return [one for one in every_decision(home) if one.row_id in rows or (word and word in f"{one.reason}\n{one.text or ''}")]


def _shared_remains(store: Store, subject: Subject) -> list[str]:
    """Return the artifacts in the shared store that other homes have written meanwhile, or may be writing."""
    if store.remote is None:
        return []
    hits = [f"{hit.ref.name}/{hit.ref.digest}" for hit in find(store, subject).hits]
    return [*hits, *store.remote.sweep(SETTLING_SECONDS)]


def _note(home: Home, store: Store, subject: Subject, exposed: Exposed, date: str) -> dict[str, str]:
    """Write the tombstone and the datasets without the rows. Returns the new digest by the old one."""
    stones, found = read_tombstones(home), exposed.findings
    sessions = tuple(sorted(stones.digest("session", one) for one in found.sessions - {subject.session, subject.name}))
    rows = found.trajectories | found.pairs | found.items if subject.names_rows else set[str]()
    if subject.kind == "trajectory":
        rows = {*rows, subject.id}  # it may be read later
    stone = Tombstone(
        kind=subject.kind,
        digest=stones.digest(subject.kind, subject.id),
        key=subject.key,
        sessions=sessions,
        rows=tuple(sorted(stones.digest("row", one) for one in rows)),
        date=date,
        trajectories=len(found.trajectories),
        replaced={},
        models=tuple(exposed.models),
    )
    write_tombstones(home, stones.with_stone(stone.model_copy(update={"trajectories": 0})))  # from now on it is not read again
    taken = {hit.ref.digest: without_rows(store, hit.ref, hit.rows).digest for hit in found.hits}
    write_tombstones(home, stones.with_stone(stone.model_copy(update={"replaced": taken})))
    return taken


def _mark_models(home: Home, stones: Tombstones, subject: Subject, date: str) -> None:
    stone = stones.stone(subject)
    if stone is None or not stone.models:
        return
    from clawpipe.record.registry.forgetting import mark_forgotten  # loads MLflow

    for model in stone.models:
        mark_forgotten(Tracking.of(home, model.name), model.name, model.version, stones.rows_of(model.uri), date)
