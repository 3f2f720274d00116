"""One sentence that says what a night compares; summary, report and model card begin with it."""

from __future__ import annotations

from collections.abc import Sequence

from clawpipe.core.config.night import NightConfig
from clawpipe.core.config.quotas import quotas
from clawpipe.core.store.refs import DatasetRef
from clawpipe.model.policy.spec import base_name
from clawpipe.play.environments.several import named


def compared(config: NightConfig, stored: Sequence[DatasetRef], pairs: Sequence[DatasetRef], champion: str | None) -> str:
    """Return the sentence: method, data, starting policy, the models compared and the held-out items.

    Args:
        config: the night's settings.
        stored: trajectory datasets to learn from.
        pairs: preference datasets to learn from.
        champion: version in service when the night begins.

    Raises:
        NotFoundError: an environment does not exist.
    """
    base = base_name(config.model.base)
    start = f"champion (version {champion})" if champion and config.train.start_from == "champion" else base
    rivals = " and ".join(filter(None, [base, f"champion (version {champion})" if champion else ""]))
    learnt = " and ".join(filter(None, [_rollouts(config), _rows(stored), _rows(pairs)]))
    return f"{config.train.method} from {start} on {learnt}; compared with {rivals} {_compared_on(config)}"


def _compared_on(config: NightConfig) -> str:
    count = config.environment.heldout_items
    if config.measure == "success":
        return f"on {count} held-out items of the environment{'s' if len(config.drawn.parts) > 1 else ''} {_shared(config, count)}"
    rows = "preference pairs" if config.measure == "preference accuracy" else "conversations"
    by = {"tool calls": "the tool calls they make", "judged": "what a judge says of their answers"}.get(
        config.measure, config.measure
    )
    return f"by {by} on up to {count} {rows} held out from them"


def _rollouts(config: NightConfig) -> str:
    if config.rollouts is None:
        return ""
    count, size = config.rounds * config.rollouts.items, config.rollouts.group_size
    return f"{count * size} rollouts in {_shared(config, count, size)}"


def shares_note(config: NightConfig) -> str | None:
    """Return how several environments share the night's items; None where there is one.

    Raises:
        NotFoundError, ConfigError: see `named`.
    """
    if len(config.drawn.parts) == 1:
        return None
    counts = {"train": config.drawn.train_items, "held-out": config.drawn.heldout_items, "benchmark": config.drawn.benchmark_items}
    return "; ".join(f"{count} {what} items: {_shared(config, count)}" for what, count in counts.items() if count)


def _shared(config: NightConfig, items: int, each: int = 1) -> str:
    """Return the environments' names; of several, with what each of them has of a number of items, times `each`."""
    labels = [one.label for one in named(config.drawn)]
    if len(labels) == 1:
        return labels[0]
    shares = quotas(items, config.drawn.weights)
    return " and ".join(f"{label} ({share * each})" for label, share in zip(labels, shares, strict=True))


def _rows(datasets: Sequence[DatasetRef]) -> str:
    if not datasets:
        return ""
    kind = {"preference_pairs": "preference pairs"}.get(datasets[0].name, datasets[0].name)
    return f"{sum(dataset.rows for dataset in datasets)} stored {kind}"
