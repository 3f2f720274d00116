"""What a plan says about a night's learning rate."""

from __future__ import annotations

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config import NightConfig
from clawpipe.core.config.rates import WIDTH, Rate, gain, planned_rate
from clawpipe.core.config.training import Train
from clawpipe.model.planning.architecture import width_of


def rate_of_night(config: NightConfig) -> Rate:
    return planned_rate(config.train, width_of(config.model.base))


def rate_notes(train: Train, rate: Rate) -> list[str]:
    """Return where the rate comes from, and a warning where the one that is set is far from the function's."""
    if rate.function is None:
        return ["the base's width is not known before it is here, and train.learning_rate depends on it"] if not rate.value else []
    if train.learning_rate:
        return _far_off(train, rate, train.learning_rate / rate.function)
    return [f"train.learning_rate {rate.function:g}, from {_source(train, rate)}"]


def _far_off(train: Train, rate: Rate, times: float) -> list[str]:
    if not rate.is_large and not rate.is_small:
        return []
    far = f"{times:.0f} times" if rate.is_large else f"1/{1 / times:.0f} of"
    what = f"warning: train.learning_rate {rate.value:g} is {far} what {_source(train, rate)} suggest: {rate.function:g}"
    return [what if rate.is_large else f"{what}; a night has few steps, and would hardly learn"]


def _source(train: Train, rate: Rate) -> str:
    trained = "all weights" if train.adapter == "full" else f"an adapter of gain {gain(train.lora):g}"
    known = "measured" if rate.is_measured else f"not measured: nothing above {WIDTH} is"
    return f"the method {train.method}, {trained} and a width of {rate.width} ({known})"


def rate_facts(train: Train, rate: Rate) -> JsonObject:
    """Return the rate as `--json` prints it."""
    facts = {"learning_rate": rate.value, "set": train.learning_rate is not None, "function": rate.function}
    return facts | {"width": rate.width, "measured": rate.is_measured}
