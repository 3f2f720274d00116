"""What a night may have forgotten because it hardly asked for it, and the setting that keeps it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow.compute as pc

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.refs import DatasetRef
from clawpipe.record.nights.status import NightStatus

_FEW = 0.5  # of an equal share of the train items


def forgetting_warning(status: NightStatus, store: Store, config: NightConfig) -> str | None:
    """Return what to set if the candidate lost slices that few of the night's train items ask for, else None.

    A slice is lost by the gate's own test. Nights that learn from no rollouts of their own have none to replay.
    """
    if config.rollouts is None or config.curation.sampling.replay_nights or not config.train.spec.learns_from_scores:
        return None
    lost, asked = set(_lost(status, config.gate.alpha)), _asked(status, store)
    few = _FEW * sum(asked.values()) / max(len(asked), 1)
    forgotten = sorted(name for name in lost if asked[name] < few)
    if not forgotten:
        return None
    counts = ", ".join(f"{name} ({asked[name]} of {sum(asked.values())} train items)" for name in forgotten)
    fix = "set curation.sampling.replay (0.5) and curation.sampling.replay_nights (12), so that rollouts of earlier nights keep it"
    return f"The candidate lost what this night hardly asked for: {counts}. Ask for more of it, or {fix}."


def _lost(status: NightStatus, alpha: float) -> Iterator[str]:
    slices = next((step.details["slices"] for step in status.steps if step.name == "gate"), [])
    yield from (part["slice"] for part in slices if part["p_regression"] < alpha / len(slices))


def _asked(status: NightStatus, store: Store) -> Counter[str]:
    """Return the number of train items by slice, of every slice that train or held-out items have."""
    made = next((step.artifacts["output"] for step in status.steps if step.name == "draw_heldout"), None)
    asked = Counter[str]()
    for ref in (made, next((step.artifacts["output"] for step in status.steps if step.name == "make_items"), None)):
        if isinstance(ref, DatasetRef):
            rows = read_dataset(store, ref, ["slice", "split"])
            asked.update(dict.fromkeys(rows["slice"].to_pylist(), 0))
            asked.update(rows.filter(pc.field("split") == "train")["slice"].to_pylist())
    return asked
