"""Log a night's progress to trackers, each thing once: as it happens, or afterwards for cached steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clawpipe.config.block import renamed
from clawpipe.errors import ClawpipeError
from clawpipe.evaluation.verdict import Verdict
from clawpipe.masking import without_secrets
from clawpipe.nights.journal import NullWatcher
from clawpipe.nights.record import StepEntry
from clawpipe.store.artifacts import Store
from clawpipe.store.files import write_atomic
from clawpipe.store.refs import DatasetRef
from clawpipe.tracking.names import tracked
from clawpipe.tracking.rewards import round_rewards
from clawpipe.tracking.sinks import Sink

_FILE = "tracking.json"
_LONGEST = 200  # most characters of a tracker's error in a warning


class Marks(BaseModel):
    """What has been logged, for a night that resumes."""

    model_config = ConfigDict(extra="forbid")

    attempt: int = renamed("making", "attempt", default=1, description="number of trainings of the night with different results")
    trained: dict[str, str] = Field(default_factory=dict, description="round to digest of its adapter, in this attempt")
    steps: dict[str, int] = Field(default_factory=dict, description="tracker to last logged step; for those that cannot be asked")

    @classmethod
    def read(cls, run_dir: Path) -> Marks:
        """Read the night's marks; new ones if there are none or they are damaged."""
        try:
            return cls.model_validate_json((run_dir / _FILE).read_bytes())
        except (OSError, ValidationError):
            return cls()

    def write(self, run_dir: Path) -> None:
        write_atomic(run_dir / _FILE, self.model_dump_json(indent=2).encode())


class NightTracker(NullWatcher):
    """A watcher of the journal that logs to trackers.

    The optimizer steps of all rounds form one curve: a round's first step follows the last step of the round before. A round's
    rewards are logged with its first step.

    Args:
        sinks: the trackers.
        store: store of scores and adapters.
        run_dir: the night's directory.
        warn: called once per tracker, when it first fails.
        checkpoints: whether to log each round's adapter.
    """

    def __init__(
        self, sinks: Sequence[Sink], store: Store, run_dir: Path, warn: Callable[[str], None], *, checkpoints: bool
    ) -> None:
        self._marks = Marks.read(run_dir)
        self._lines = [_Line(sink, self._marks, warn) for sink in sinks]
        self._store, self._run_dir, self._checkpoints = store, run_dir, checkpoints
        self._curve: dict[int, dict[str, float]] = {}
        self._before = 0  # optimizer steps of the rounds before this one
        self._scores: dict[str, list[DatasetRef]] = {}

    def updated(self, step: str, metrics: Mapping[str, Any]) -> None:
        self._log(_part(step), metrics)

    def finished(self, entry: StepEntry) -> None:
        part, _, name = entry.name.rpartition("/")
        output = entry.artifacts.get("output")
        if name == "score" and isinstance(output, DatasetRef):
            self._scores.setdefault(part, []).append(output)
        elif name == "train":
            self._trained(part, entry)
        elif name == "gate":
            verdict = Verdict.model_validate(entry.details)
            self._each("the verdict", lambda line: line.sink.conclude(verdict))

    def close(self, *, failed: bool) -> None:
        """Close the trackers that are open."""
        for line in self._lines:
            if line.is_open:
                line.attempt("the end of the night", lambda line=line: line.sink.close(failed=failed))

    def _trained(self, part: str, entry: StepEntry) -> None:
        if self._marks.trained.get(part, entry.digest) != entry.digest:
            self._begin_new_run()
        for row in entry.details["updates"]:
            self._log(part, row)
        self._before = max(self._curve, default=0)
        if part not in self._marks.trained:
            self._marks.trained[part] = str(entry.digest)
            self._marks.write(self._run_dir)
        adapter = entry.artifacts.get("output")
        if self._checkpoints and adapter is not None:
            self._each(f"the adapter of {part}", lambda line: line.sink.keep(part, self._store.path(adapter)))

    def _begin_new_run(self) -> None:
        """Start a new run and log everything again: the night was trained before with another result, whose run stays."""
        self._marks.attempt += 1
        self._marks.trained.clear()
        self._marks.steps.clear()
        self._marks.write(self._run_dir)
        self._curve = {step: metrics for step, metrics in self._curve.items() if step <= self._before}
        for line in self._lines:
            line.reopen()
        for step, metrics in self._curve.items():
            self._send(step, metrics)

    def _log(self, part: str, values: Mapping[str, Any]) -> None:
        """Log an optimizer step, unless it is logged already."""
        step = self._before + int(values["step"])
        if step in self._curve:
            return
        metrics = tracked(values) | {"round": float(part.rpartition("-")[2])}
        if values["step"] == 1 and (scores := self._scores.get(part)):
            metrics |= round_rewards(self._store, scores)
        self._curve[step] = metrics
        self._send(step, metrics)

    def _send(self, step: int, metrics: Mapping[str, float]) -> None:
        known = dict(self._marks.steps)
        self._each(f"optimizer step {step}", lambda line: line.log(step, metrics))
        if self._marks.steps != known:
            self._marks.write(self._run_dir)

    def _each(self, what: str, act: Callable[[_Line], None]) -> None:
        for line in self._lines:
            line.attempt(what, lambda line=line: act(line))


class _Line:
    """The connection to one tracker. After an error it stays closed for this run of the night."""

    def __init__(self, sink: Sink, marks: Marks, warn: Callable[[str], None]) -> None:
        self.sink, self._marks, self._warn = sink, marks, warn
        self._logged: int | None = None  # last optimizer step in the tracker; None: not opened yet
        self._down = False

    @property
    def is_open(self) -> bool:
        return self._logged is not None and not self._down

    def attempt(self, what: str, act: Callable[[], None]) -> None:
        """Do something with the tracker, opening it first, unless it has failed before."""
        if self._down:
            return
        try:
            if self._logged is None:
                self._logged = self.sink.open(self._marks.attempt)
            act()
        except Exception as error:  # a tracker's client may raise anything, which must not end the night
            self._down = True
            self._warn(_warning(self.sink, what, error))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        assert self._logged is not None
        if step > self._logged:
            self.sink.log(step, metrics)
            self._logged = self._marks.steps[self.sink.name] = step

    def reopen(self) -> None:
        if self.is_open:
            self.attempt("the end of its run", lambda: self.sink.close(failed=True))
        self._logged = None


def _warning(sink: Sink, what: str, error: Exception) -> str:
    why = error.what if isinstance(error, ClawpipeError) else str(error)
    fix = (error.fix if isinstance(error, ClawpipeError) else "") or sink.away
    first = without_secrets(" ".join(why.split()))[:_LONGEST]
    return (
        f"{sink.name} did not get {what} and everything after it ({type(error).__name__}: {first}). "
        f"The night continues, and its status.json keeps every figure. To get them into {sink.name}: {fix}; then run the same "
        "command again: nothing is computed twice"
    )


def _part(step: str) -> str:
    return step.rpartition("/")[0]
