"""What the SQL steps are told of the settings, and which of them have nothing to do."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import BaseModel

from clawpipe.config.curation import Curation, Quotas, Sampling

_BALANCED = 1.25  # how many times longer a length-balanced reply may be where nothing else is said


def parameters(config: Curation) -> dict[str, Any]:
    """A value for each `$name` of a step: a setting has its own name, that of a block `<block>_<name>`."""
    flat = {}
    for name, value in config:
        block = dict(value) if isinstance(value, BaseModel) else None
        flat |= {name: value} if block is None else {f"{name}_{inner}": part for inner, part in block.items()}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in flat.items()}
    return plain | _derived(config)


def idle_steps(config: Curation, facts: Collection[str]) -> set[str]:
    """The steps of which nothing is asked; each would pass every row on. `facts` are the tables that it was given."""
    filters, rows = config.filters, config.quotas.model_copy(update={"session_share": None})
    asked = {
        "22_quality": filters.scripts or (filters.max_repetition, filters.max_tool_error_rate) != (None, None),
        "25_staleness": config.max_staleness is not None,
        "32_decontaminate_near": "near_heldout" in facts,
        "35_canary": config.canaries,
        "45_near_duplicate": "near_duplicate" in facts,
        "48_quotas": rows != Quotas(),
        "68_sampling": config.sampling != Sampling(),
        "69_share": config.quotas.session_share is not None,
    }
    return {step for step, reason in asked.items() if not reason}


def wants(config: Curation, method: str) -> dict[str, Any]:
    """What is to be measured of each trajectory, besides what every night measures: a value for each `$name` of measures.sql."""
    filters, pairs = config.filters, config.pairs
    return {
        "wants_rendered": {"sft": "all", "dpo": "all", "opd": "scored", "combine": "scored"}.get(method),
        "wants_ratios": method not in ("sft", "dpo"),
        "wants_foreign": "[^" + "".join(f"\\p{{{script}}}" for script in filters.scripts) + "]+" if filters.scripts else None,
        "wants_repetition": filters.repetition_words if filters.max_repetition is not None else None,
        "wants_tool_errors": filters.max_tool_error_rate is not None,
        "wants_corrections": pairs.corrections,
        "wants_sides": method == "dpo",
        "wants_acts": method == "dpo" and (pairs.corrections or pairs.strategy == "same-prefix"),
        "canaries": list(config.canaries),
    }


def _derived(config: Curation) -> dict[str, Any]:
    """What a setting means where it is not a number or a word."""
    pairs, band = config.pairs, config.sampling.band
    return {
        "pairs_length_ratio": pairs.length_ratio or (_BALANCED if pairs.strategy == "length-balanced" else None),
        "sampling_low": band.low,
        "sampling_high": band.high,
        "sampling_sources": list(config.sampling.mixture),
        "sampling_weights": list(config.sampling.mixture.values()),
    }
