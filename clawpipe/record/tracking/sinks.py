"""The interface of a tracker. A tracker keeps one run per night and gets everything once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from clawpipe.learn.evaluation.verdict.verdict import Verdict


class Sink(Protocol):
    """A tracker. Any method may raise its client's errors: the night continues without it."""

    name: str
    away: str
    """What to do if it cannot be reached."""

    def open(self, attempt: int) -> int:
        """Find or create the run of an attempt at the night; attempts are its trainings with different results, from 1.

        Returns the last logged optimizer step, 0 for none.
        """
        ...

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of one optimizer step; steps rise from 1 through all rounds of the night."""
        ...

    def probed(self, curve: Mapping[int, Mapping[str, float]]) -> None:
        """Log the night's probes, by the optimizer step after which each was taken. Called when all steps are logged."""
        ...

    def keep(self, part: str, directory: Path) -> None:
        """Keep the adapter that a round trained as an artifact of the run, if the tracker keeps artifacts."""
        ...

    def conclude(self, verdict: Verdict) -> None:
        """Log the held-out results and the decision."""
        ...

    def close(self, *, failed: bool) -> None:
        """End the run; `failed`: the night has no verdict."""
        ...
