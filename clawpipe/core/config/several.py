"""Several environments in one night: what they are as one, and why some cannot be."""

from __future__ import annotations

import os
from collections.abc import Sequence

from clawpipe.core.config.environment import (
    CONVERSATIONS,
    Drawn,
    DrawnEnvironments,
    EnvironmentConfig,
    EnvironmentSpec,
    WeightedEnvironment,
)
from clawpipe.core.config.quotas import quotas

_COUNTS = ("train_items", "heldout_items", "benchmark_items", "seed")
_ALONE = frozenset(EnvironmentSpec.model_fields)  # settings of a single environment


def drawn_from(single: EnvironmentConfig, several: Sequence[WeightedEnvironment]) -> Drawn:
    """Return what a night draws its items from. A list of one without a label is the same night as the short form."""
    counts = {name: getattr(single, name) for name in _COUNTS}
    if not several:
        return single
    if len(several) == 1 and several[0].label is None:
        return EnvironmentConfig(**counts, **{name: getattr(several[0], name) for name in _ALONE})
    return DrawnEnvironments(parts=tuple(several), **counts)


def obstacle_of(single: EnvironmentConfig, several: Sequence[WeightedEnvironment], round_items: int) -> str | None:
    """Return why a night cannot have these environments; None if it can, or has a single one.

    Args:
        round_items: items of a round; 0: there are no rollouts.
    """
    if not several:
        return None
    if both := sorted(
        name
        for name in _ALONE
        if getattr(single, name) != EnvironmentConfig.model_fields[name].get_default(call_default_factory=True)
    ):
        return f"`environments` and environment.{both[0]} both name an environment: leave environment.{both[0]} out"
    if any(part.name == CONVERSATIONS for part in several):
        return f"{CONVERSATIONS} has no tasks, and cannot be one of `environments`: name it alone, as environment.name"
    return _twice(several) or _too_small(single, several, round_items)


def _twice(several: Sequence[WeightedEnvironment]) -> str | None:
    seen: list[tuple[object, object]] = []
    for place, part in enumerate(several):
        own = _place(part.name), part.options
        if own in seen:
            what = f"environments[{place}] is environments[{seen.index(own)}] again, {part.name} with the same options"
            return f"{what}: name it once, with the sum of the weights"
        seen.append(own)
    labels = [part.label for part in several if part.label]
    if double := next((label for label in labels if labels.count(label) > 1), None):
        return f"two of `environments` have the label {double!r}: give each one of its own"
    return None


def _place(name: str) -> str:
    """Return a name that is the same for every path to one file."""
    file, colon, member = name.rpartition(":")
    return f"{os.path.realpath(os.path.expanduser(file))}:{member}" if colon and file.endswith(".py") else name


def _too_small(single: EnvironmentConfig, several: Sequence[WeightedEnvironment], round_items: int) -> str | None:
    weights = [part.weight for part in several]
    counts = {f"environment.{name}": getattr(single, name) for name in _COUNTS if name != "seed"} | {"rollouts.items": round_items}
    for setting, total in counts.items():
        for part, quota in zip(several, quotas(total, weights), strict=True):
            if total and not quota:
                what = f"{setting} ({total}) leaves {part.name} with its weight {part.weight:g} of {sum(weights):g} no item"
                return f"{what}: raise one of them"
    return None
