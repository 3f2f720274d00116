"""Promotion and rollback: the alias `champion` moves under one lock, and each move is an entry in the ledger, as is a trial.

MLflow keeps no history of aliases and cannot move one together with anything else. So the move is begun in the ledger
first, then the alias moves, then the entry is settled. The next process, of whichever home, finds the pending move of a
killed one and settles it, or cancels it if the alias had not moved.
"""

from __future__ import annotations

import datetime
import uuid
from pathlib import Path
from typing import Literal

from mlflow import MlflowClient
from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.ledger.base import Ledger, Logged
from clawpipe.core.store.log import AppendLog
from clawpipe.core.system import faults
from clawpipe.errors import BusyError, NotFoundError
from clawpipe.record.registry.client import changes, claim, unless_absent
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.registry.versions import CHAMPION, FILES_REMOVED, version_info

LOG = "promotions"
TrialAction = Literal["trial", "trial_passed", "trial_ended"]


class Move(BaseModel):
    """One move of the alias, or the begin or end of a trial, in which a share of sessions gets the alias's new version."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(description="unique; derived from the night for a promotion, since a night promotes once")
    time: str = Field(description="ISO 8601, UTC")
    model: str
    action: Literal["promote", "rollback"] | TrialAction
    from_version: str | None = Field(description="version in service before; in a trial, the one that the other sessions get")
    to_version: str = Field(description="version in service afterwards; in a trial, the one on trial")
    who: str = Field(description="a night, a user, or `serve`")
    reason: str
    evidence: str = Field(description="digest of the verdict; empty without one")
    forced: bool = Field(description="whether a person overruled the gate")


def move_log(path: Path) -> AppendLog[Move]:
    """Return the log in a home's file. Appending needs the registry's lock."""
    return AppendLog(path, Move)


def promote(
    tracking: Tracking,
    version: str,
    *,
    who: str,
    reason: str,
    evidence: str = "",
    night: str | None = None,
    expected: str | None = None,
    forced: bool = False,
) -> Move | None:
    """Put a version in service.

    Args:
        tracking: the registry.
        version: number of the version.
        who: a night or a user, for the log.
        reason: for the log.
        evidence: digest of the verdict.
        night: a night promotes once, however often it is tried, even if its model was rolled back since.
        expected: version that the candidate was compared with; None: there was no champion. If no version is in service now,
        nothing is checked.
        forced: a person overrules the gate; `expected` is then ignored.

    Returns:
        the move, or the one that this night made before; None if the version is in service already.

    Raises:
        NotFoundError: the version does not exist.
        BusyError: another version is in service than the one that the candidate was compared with.
    """
    with changes(tracking) as client:
        ledger, finished = _opened(client, tracking)
        log = ledger.read(LOG, Move)
        identity = f"{night}/{version}" if night else uuid.uuid4().hex
        current = _current(client, tracking)
        moves = _moves(log, tracking)
        made = [move for move in moves if move.id == identity]
        if made and current is not None:
            return made[0]
        if finished and finished.action == "promote" and finished.to_version == version:
            return finished
        _require(client, tracking, version)
        if current == version:
            return None
        if made and moves[-1] == made[0]:  # the registry was lost and created again: the log knows already
            _move_alias(client, made[0])
            return made[0]
        if not forced and current not in (expected, None):
            raise _replaced(tracking, current, expected, who)
        move = Move(
            id=f"{identity}/{uuid.uuid4().hex}" if made else identity,  # the registry was lost and created again
            time=_now(),
            model=tracking.model_name,
            action="promote",
            from_version=current,
            to_version=version,
            who=who,
            reason=reason,
            evidence=evidence,
            forced=forced,
        )
        return _make(client, ledger, move, log.end)


def rollback(tracking: Tracking, *, who: str, reason: str, expected: str | None = None) -> Move:
    """Put the version before the champion back in service; if repeated after a kill, it goes back only once.

    Args:
        tracking: the registry.
        who: a user, or `serve`.
        reason: for the log.
        expected: the champion that is to go; None: whichever is in service.

    Raises:
        NotFoundError: there is no champion, no version before it, or that version is gone.
        BusyError: another version than the expected one is in service.
    """
    with changes(tracking) as client:
        ledger, finished = _opened(client, tracking)
        if finished and finished.action == "rollback":
            return finished
        log = ledger.read(LOG, Move)
        current = _current(client, tracking)
        if expected is not None and current != expected:
            raise BusyError(f"version {current} of {tracking.model_name} is in service, not {expected}", ledger.where)
        previous = previous_champion(_moves(log, tracking), current)
        if current is None or previous is None:
            raise NotFoundError(f"{tracking.model_name} has no earlier champion to go back to", ledger.where)
        _require(client, tracking, previous)
        move = Move(
            id=uuid.uuid4().hex,
            time=_now(),
            model=tracking.model_name,
            action="rollback",
            from_version=current,
            to_version=previous,
            who=who,
            reason=reason,
            evidence="",
            forced=True,
        )
        return _make(client, ledger, move, log.end)


def log_trial(tracking: Tracking, action: TrialAction, version: str, *, beside: str, who: str, reason: str) -> Move:
    """Write the begin or the end of a trial into the log; the alias stays where it is.

    Args:
        tracking: the registry.
        action: `trial` begins one; then it is passed, or ended for a reason.
        version: which is on trial.
        beside: version that the other sessions get.
        who: `serve`.
        reason: for the log.
    """
    move = Move(
        id=uuid.uuid4().hex,
        time=_now(),
        model=tracking.model_name,
        action=action,
        from_version=beside,
        to_version=version,
        who=who,
        reason=reason,
        evidence="",
        forced=False,
    )
    with changes(tracking) as client:
        ledger, _ = _opened(client, tracking)
        ledger.append(LOG, move)
    return move


def history(tracking: Tracking) -> list[Move]:
    """Return the moves of this model's champion that are in the ledger, oldest first; trials move nothing.

    Raises:
        DataError: the log is damaged.
    """
    return _moves(tracking.ledger().read(LOG, Move), tracking)


def _moves(log: Logged[Move], tracking: Tracking) -> list[Move]:
    return [move for move in log.entries if move.model == tracking.model_name and move.action in ("promote", "rollback")]


def promotion_by(tracking: Tracking, night: str, version: str) -> Move | None:
    """Return the move by which a night put a version in service, settled or not; None if it did not."""
    log = tracking.ledger().read(LOG, Move)
    moves = [*_moves(log, tracking), *(move for move in log.pending if move.model == tracking.model_name)]
    return next((move for move in reversed(moves) if move.to_version == version and move.id.startswith(f"{night}/")), None)


def previous_champion(moves: list[Move], current: str | None) -> str | None:
    """Return the version to which a rollback from `current` leads."""
    return next(iter(rollback_targets(moves, current)), None)


def rollback_targets(moves: list[Move], current: str | None) -> list[str]:
    """Return the versions to which one rollback after another from `current` leads.

    Promotions push onto a stack and rollbacks pop. A champion that was set without the log (in MLflow's UI) lies on
    top of the last one in the log.
    """
    stack: list[str] = []
    for move in moves:
        if move.action == "rollback":
            while stack and stack[-1] != move.to_version:
                stack.pop()
        elif move.from_version and stack[-1:] != [move.from_version]:
            stack.append(move.from_version)
        if stack[-1:] != [move.to_version]:
            stack.append(move.to_version)
    if stack[-1:] == [current]:
        stack.pop()
    return stack[::-1]


def _replaced(tracking: Tracking, current: str | None, expected: str | None, who: str) -> BusyError:
    """Return the error for a champion that changed since `who` compared with it."""
    moves = [move for move in history(tracking) if move.to_version == current]
    by = f", since {moves[-1].time} by {'an earlier run of this night' if moves[-1].who == who else moves[-1].who}" if moves else ""
    against = f"version {expected}" if expected else "the base, when no version was in service"
    fix = f"run the night again; a night that has its verdict is compared with version {current} under another label: -o night=..."
    return BusyError(
        f"version {current} of {tracking.model_name} is in service{by}, but the candidate was compared with {against}",
        tracking.ledger().where,
        fix,
    )


def _opened(client: MlflowClient, tracking: Tracking) -> tuple[Ledger, Move | None]:
    """Open the ledger to write a move. Returns the move, too, that a killed process has left and that is complete now."""
    ledger = tracking.ledger()
    claim(client, tracking, ledger)
    return ledger, _finish(client, ledger, tracking)


def _make(client: MlflowClient, ledger: Ledger, move: Move, after: int) -> Move:
    ledger.begin(LOG, move.model, move.id, move, after)
    faults.kill_point("promote.before_alias")
    _move_alias(client, move)
    faults.kill_point("promote.after_alias")
    ledger.settle(LOG, move.model, move.id, move)
    return move


def _move_alias(client: MlflowClient, move: Move) -> None:
    if move.action == "promote":
        tags = {"previous": move.from_version or "", "evidence": move.evidence, "promoted_by": move.who}
        for name, value in tags.items():
            client.set_model_version_tag(move.model, move.to_version, f"clawpipe.{name}", value)
    client.set_registered_model_alias(move.model, CHAMPION, move.to_version)


def _finish(client: MlflowClient, ledger: Ledger, tracking: Tracking) -> Move | None:
    """Complete the move that a killed process began; None if there is none, or its alias had not moved."""
    move = next((move for move in ledger.read(LOG, Move).pending if move.model == tracking.model_name), None)
    if move is None:
        return None
    if _current(client, tracking) != move.to_version:
        ledger.cancel(LOG, move.model, move.id)
        return None
    ledger.settle(LOG, move.model, move.id, move)
    return move


def _current(client: MlflowClient, tracking: Tracking) -> str | None:
    found = unless_absent(lambda: client.get_model_version_by_alias(tracking.model_name, CHAMPION))
    return str(found.version) if found else None


def _require(client: MlflowClient, tracking: Tracking, version: str) -> None:
    found = unless_absent(lambda: client.get_model_version(tracking.model_name, version))
    if found is None:
        raise NotFoundError(f"{tracking.model_name} has no version {version}")
    if FILES_REMOVED in found.tags:
        version_info(found).require_files()


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
