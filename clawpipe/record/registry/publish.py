"""Registration and promotion as steps, and by hand: the candidate becomes a version, a version becomes the champion."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.digests import sha256_json
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.errors import ConfigError, DataError, NotFoundError
from clawpipe.learn.evaluation.verdict.verdict import Verdict
from clawpipe.play.environments.several import OpenEnvironments
from clawpipe.record.registry.night_summary import NightSummary, final_metrics
from clawpipe.record.registry.package import Package, verify_package, write_package
from clawpipe.record.registry.promotions import Move, history, promote
from clawpipe.record.registry.runs import NightRun
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.registry.versions import ModelVersionInfo, champion, download, is_intact, register, resolve


def register_candidate(
    tracking: Tracking,
    store: Store,
    summary: NightSummary,
    candidate: ModelRef,
    environments: OpenEnvironments,
    datasets: dict[str, DatasetRef],
    verdict: Verdict,
    check: Callable[[Path], None],
) -> StepResult:
    """Register the candidate once, with everything that a reader of the registry needs.

    Args:
        check: checks the downloaded copy before a version is made of it.

    Raises:
        DataError, BusyError: see `clawpipe.record.registry.versions.register`.
    """
    package = Package(
        key=candidate.policy_version,
        model_name=summary.model_name,
        night=summary.night,
        compared=summary.compared,
        policy=candidate,
        environment=environments.name,
        tools=tuple(environments.tools()),
        preamble=tuple(environments.preamble()),
        datasets=datasets,
        config=summary.config,
        verdict=verdict,
    )
    directory = store.root / ".staging" / f"package-{candidate.policy_version}"
    shutil.rmtree(directory, ignore_errors=True)
    try:
        write_package(directory, store, package)
        run = NightRun(night=summary.night, params=summary.config, metrics=final_metrics(verdict), datasets=datasets)
        info = register(tracking, directory, check, run)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    model = {"name": info.name, "version": info.version, "digest": candidate.digest}
    return StepResult(output=candidate, rows_in=1, rows_out=1, details={"model": model, "uri": info.uri, "run_id": info.run_id})


def promote_version(tracking: Tracking, summary: NightSummary, version: str, verdict: Verdict) -> StepResult:
    """Put the version in service; a repeated call finds the move that was made."""
    promote(
        tracking,
        version,
        who=f"night {summary.night}",
        reason=" ".join(verdict.reasons),
        evidence=sha256_json(verdict),
        night=summary.night,
        expected=summary.champion,
    )
    aliases = resolve(tracking, f"models:/{tracking.model_name}/{version}").aliases
    return StepResult(
        rows_in=1, rows_out=1, details={"aliases": list(aliases), "night": summary.night, "uri": _uri(tracking, version)}
    )


def overrule(home: Home, name: str, who: str, reason: str) -> tuple[ModelVersionInfo, Move | None]:
    """Put a version in service although no gate promoted it. The move is logged as forced, with the digest of its verdict.

    Args:
        name: `NAME@3`, or the `models:/` URI of a version.
        who: a user, for the log.
        reason: for the log.

    Returns:
        the version, and the move; None instead of a move if the version is in service already.

    Raises:
        ConfigError: no reason is given, or the name has another form.
        NotFoundError, DataError: see `clawpipe.record.registry.versions.download`.
    """
    if not reason.strip():
        raise ConfigError("a promotion by hand needs a reason for the log", "--reason", "say why the gate is overruled")
    directory, info = download(Tracking.of(home, "none"), name)  # which holds the model's name
    evidence = sha256_json(verify_package(directory).verdict)
    move = promote(Tracking.of(home, info.name), info.version, who=who, reason=reason, evidence=evidence, forced=True)
    return info, move


def is_registered(home: Home, result: StepResult) -> bool:
    """Return whether the registry still holds the registered version with its files, made by the same run: one that was lost and
    made anew has the versions of before, and runs of its own."""
    tracking = Tracking.of(home, result.details["model"]["name"])
    try:
        info = resolve(tracking, result.details["uri"])
    except (NotFoundError, DataError):
        return False
    same = (info.policy, info.run_id) == (result.output, result.details["run_id"])
    return same and is_intact(tracking, info)


def is_promoted(home: Home, result: StepResult) -> bool:
    """Return whether the version is in service, or was promoted by this night and replaced since. A rollback is not undone."""
    name, version = result.details["uri"].removeprefix("models:/").split("/")
    tracking = Tracking.of(home, name)
    current = champion(tracking)
    made = any(move.id == f"{result.details['night']}/{version}" for move in history(tracking))
    return current is not None and (made or current.version == version)


def _uri(tracking: Tracking, version: str) -> str:
    return f"models:/{tracking.model_name}/{version}"
