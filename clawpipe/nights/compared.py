"""What a night compares, in one sentence: the first thing that its summary, its report and the model card say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clawpipe.config.night import NightConfig
from clawpipe.environments.discovery import environment_name
from clawpipe.store.refs import DatasetRef


def compared(config: NightConfig, stored: Sequence[DatasetRef], pairs: Sequence[DatasetRef], champion: str | None) -> str:
    """Method, data, start, the models that are compared, and what they are asked.

    Args:
        config: settings of the night.
        stored: trajectory datasets that it learns from.
        pairs: preference datasets that it learns from.
        champion: version in service when the night began.

    Raises:
        NotFoundError: no such environment.
    """
    environment, base = environment_name(config.environment.name), base_name(config.model.base)
    start = f"champion (version {champion})" if champion and config.train.start_from == "champion" else base
    rivals = " and ".join(filter(None, [base, f"champion (version {champion})" if champion else ""]))
    learnt = " and ".join(filter(None, [_rollouts(config, environment), _rows(stored), _rows(pairs)]))
    return (
        f"{config.train.method} from {start} on {learnt}; compared with {rivals} "
        f"on {config.environment.heldout_items} held-out items of the environment {environment}"
    )


def base_name(name: str) -> str:
    """A base model's name without the folders of this machine."""
    return Path(name).name if Path(name).expanduser().is_absolute() else name


def _rollouts(config: NightConfig, environment: str) -> str:
    if config.rollouts is None:
        return ""
    count = config.rounds * config.rollouts.items * config.rollouts.group_size
    return f"{count} rollouts in {environment}"


def _rows(datasets: Sequence[DatasetRef]) -> str:
    if not datasets:
        return ""
    kind = {"preference_pairs": "preference pairs"}.get(datasets[0].name, datasets[0].name)
    return f"{sum(dataset.rows for dataset in datasets)} stored {kind}"
