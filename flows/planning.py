"""What a night would do, looked up step by step."""

from __future__ import annotations

from typing import Any

from clawpipe.config import NightConfig
from clawpipe.store.home import Home
from flows.nightly import the_night
from flows.opening import paper_night
from flows.steps import PaperSteps


def plan_night(config: NightConfig) -> list[dict[str, Any]]:
    """Name, key and `would` (run or cached) of every step, in order. Nothing is written and no server is asked."""
    steps = PaperSteps(Home.from_env())
    the_night(steps, paper_night(config))
    return steps.steps
