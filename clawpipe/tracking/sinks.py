"""What a tracker must be able to do. Each keeps one run a night and is told everything once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from clawpipe.evaluation.verdict import Verdict

_SECRETS = ("WANDB_API_KEY", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")


class Sink(Protocol):
    """A tracker. Any method may raise whatever its client raises: the night goes on without it."""

    name: str
    away: str
    """What to do where it cannot be reached."""

    def open(self, making: int) -> int:
        """Find or create the run of this making of the night. Returns the last update whose metrics it holds, 0 for none."""
        ...

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """The metrics of one update; steps rise from 1 through all rounds of the night."""
        ...

    def keep(self, part: str, directory: Path) -> None:
        """The adapter that a round trained, as an artefact of the run; nothing where the tracker is not for that."""
        ...

    def conclude(self, verdict: Verdict) -> None:
        """The held-out results and the decision."""
        ...

    def close(self, *, failed: bool) -> None:
        """The night is over; `failed`: without a verdict."""
        ...


def without_secrets(text: str) -> str:
    """`text` without keys of the environment and without passwords in addresses."""
    for secret in filter(None, map(os.environ.get, _SECRETS)):
        text = text.replace(secret, "***")
    return re.sub(r"//[^/@\s]+@", "//", text)
