"""What a run has read and made, for people and programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clawpipe.importers.survey import listed
from clawpipe.ingest.run import Ingested
from clawpipe.store.home import Home
from clawpipe.store.open import open_store

_ROLES = {"scores": "scores", "preference_pairs": "preferences", "task_items": "items", "quarantine": "quarantine"}


def facts(home: Home, done: Ingested) -> dict[str, Any]:
    """One JSON object. accepted + the sum of quarantined = lines."""
    store, counts = open_store(home), done.counts
    datasets = {name: {"digest": ref.digest, "rows": ref.rows, "path": str(store.path(ref))} for name, ref in done.datasets.items()}
    return {
        "files": len(done.read) + len(done.skipped),
        "new_files": len(done.read),
        "skipped": len(done.skipped),
        "lines": done.reading.lines,
        "accepted": done.accepted,
        "quarantined": dict(done.refused.most_common()),
        "formats": dict(done.reading.formats),
        "trajectories": counts["trajectories"],
        "turns": counts["turns"],
        "side_turns": counts["side_turns"],
        "with_tokens": counts["with_tokens"],
        "repeated": counts["repeated"],
        "silent": dict(done.reading.silent),
        "redactions": dict(done.redactions.most_common()),
        "dataset": datasets["trajectories"],
        **{role: datasets[name] for name, role in _ROLES.items() if name in datasets},
        "parts": done.parts,
        "log": str(done.log),
        "warnings": list(warnings(done)),
    }


def warnings(done: Ingested) -> Iterator[str]:
    """What is most likely a mistake, though every line was read."""
    counts = done.counts
    side = [file for file, of_file in done.of_files.items() if of_file["side_turns"] == of_file["turns"]]
    unnamed = [file for file, of_file in done.of_files.items() if not of_file["with_session"]]
    if side:
        yield f"{listed(side)}: every turn is a side turn: nothing of this would be trained on"
    if unnamed:
        yield f"{listed(unnamed)}: no conversation has a session id: quotas by session, trace and forget cannot tell them apart"
    yield from done.reading.warnings()
    if counts["unnamed_policy"]:
        yield f"{counts['unnamed_policy']} rows have tokens, but nobody says which policy sampled them: give --policy-version"
    if counts["unknown_temperature"]:
        yield (
            f"{counts['unknown_temperature']} rows do not say at which temperature their tokens were sampled, so no ratio can be "
            "taken of their log-probs: give --temperature"
        )
    if counts["lost_tokens"]:
        yield f"{counts['lost_tokens']} rows have lost their tokens, which spelled a secret: they are text only"
    if done.reading.unmatched:
        yield f"{done.reading.unmatched} judge records belong to no turn that was ever read: ingest their turns as well"
    if done.unused_labels:
        yield f"{done.unused_labels} labels belong to no prompt that was read"
    if done.reading.lines and not done.accepted:
        yield "no line was accepted: is this the right file, and the right --format?"
