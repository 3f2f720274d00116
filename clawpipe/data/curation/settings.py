"""What the settings of curation ask of its SQL files: their parameters, the steps that would keep every row, and the measures."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import BaseModel

from clawpipe.core.basics.json_types import Options
from clawpipe.core.config.curation import Curation, Quotas, Sampling
from clawpipe.core.config.methods import METHODS

_BALANCED = 1.25  # default length ratio of length-balanced pairs


def parameters(config: Curation) -> Options:
    """Return a value for each `$name` of a step: settings under their names, those of a block as `<block>_<name>`."""
    flat = {}
    for name, value in config:
        block = dict(value) if isinstance(value, BaseModel) else None
        flat |= {name: value} if block is None else {f"{name}_{inner}": part for inner, part in block.items()}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in flat.items()}
    return plain | _derived(config)


def idle_steps(config: Curation, tables: Collection[str], row_means: bool = False) -> set[str]:
    """Return the steps that would keep every row, as it is, under these settings.

    Args:
        tables: names of the given tables.
        row_means: whether the loss is a mean over rows.
    """
    filters, rows = config.filters, config.quotas.model_copy(update={"session_share": None})
    asked = {
        "12_review": config.approved_only or "reviews" in tables,
        "13_outcome_approved": "reviews" in tables,
        "22_quality": filters.scripts or (filters.max_repetition, filters.max_tool_error_rate) != (None, None),
        "25_staleness": config.max_staleness is not None,
        "32_decontaminate_near": "near_heldout" in tables,
        "35_canary": config.canaries,
        "45_near_duplicate": "near_duplicate" in tables,
        "47_policy_raters": config.level_users,
        "48_quotas": rows != Quotas(),
        "68_sampling": config.sampling != Sampling(),
        "69_demonstrations": config.demonstrations.share,
        "69_episodes": row_means,
        "69_share": config.quotas.session_share is not None,
        "69_weights": config.demonstrations.share or config.slice_weights,
    }
    return {step for step, reason in asked.items() if not reason}


def wants(config: Curation, method: str) -> Options:
    """Return a value for each `$name` of measures.sql: the optional measures that these settings need."""
    filters, pairs, kind = config.filters, config.pairs, METHODS[method]
    return {
        "wants_rendered": kind.text if kind.text != "none" else None,
        "wants_ratios": kind.uses_ratios,
        "wants_compressed": config.compress is not None,
        "wants_foreign": "[^" + "".join(f"\\p{{{script}}}" for script in filters.scripts) + "]+" if filters.scripts else None,
        "wants_repetition": filters.repetition_words if filters.max_repetition is not None else None,
        "wants_tool_errors": filters.max_tool_error_rate is not None,
        "wants_corrections": pairs.corrections,
        "by_pairs": kind.pairs,
        "wants_acts": kind.pairs and (pairs.corrections or pairs.strategy == "same-prefix"),
        "canaries": list(config.canaries),
    }


def _derived(config: Curation) -> Options:
    """Return parameters that are derived from several settings."""
    pairs, band = config.pairs, config.sampling.band
    return {
        "pairs_length_ratio": pairs.length_ratio or (_BALANCED if pairs.strategy == "length-balanced" else None),
        "sampling_low": band.low,
        "sampling_high": band.high,
        "sampling_sources": list(config.sampling.mixture),
        "sampling_weights": list(config.sampling.mixture.values()),
        "part_names": list(config.part_weights),
        "part_factors": list(config.part_weights.values()),
        "balanced": config.slice_weights == "balanced",
        "slice_names": [] if config.slice_weights == "balanced" else list(config.slice_weights),
        "slice_factors": [] if config.slice_weights == "balanced" else list(config.slice_weights.values()),
    }
