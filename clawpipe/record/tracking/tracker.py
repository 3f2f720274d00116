"""Log a night's progress to trackers, each thing once: as it happens, or afterwards for cached steps."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clawpipe.core.basics.masking import without_secrets
from clawpipe.core.config.block import renamed
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.refs import DatasetRef
from clawpipe.errors import ClawpipeError
from clawpipe.learn.evaluation.verdict.verdict import Verdict
from clawpipe.record.nights.journal import NullWatcher
from clawpipe.record.nights.status import StepEntry
from clawpipe.record.tracking.names import PROBE_SUCCESS, tracked
from clawpipe.record.tracking.rewards import round_rewards
from clawpipe.record.tracking.sinks import Sink

_FILE = "tracking.json"
_LONGEST = 200  # most characters of a tracker's error in a warning
_PAUSE_SECONDS = 5.0  # at least, after an error
_PAUSE_SHARE = 10  # times as long as the try that failed, so that a tracker that is away costs a tenth of the night at most


class Marks(BaseModel):
    """What has been logged, for a night that resumes."""

    model_config = ConfigDict(extra="forbid")

    attempt: int = renamed("making", "attempt", default=1, description="number of trainings of the night with different results")
    trained: dict[str, str] = Field(default_factory=dict, description="round to digest of its adapter, in this attempt")
    steps: dict[str, int] = Field(default_factory=dict, description="tracker to last logged step; for those that cannot be asked")

    probed: dict[str, int] = Field(default_factory=dict, description="tracker to the optimizer step of its last probe")

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
        self._kept = self._marks.model_copy(deep=True)
        self._lines = [_Line(sink, self._marks, warn) for sink in sinks]
        self._store, self._run_dir, self._checkpoints = store, run_dir, checkpoints
        self._curve: dict[int, dict[str, float]] = {}
        self._before = 0  # optimizer steps of the rounds before this one
        self._begun = 0  # optimizer steps before the round that was trained last
        self._probes: dict[int, dict[str, float]] = {}
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
        elif name == "probe":
            probes = [one for one in entry.details["probes"] if "success" in one]
            self._probes |= {self._begun + one["step"]: {PROBE_SUCCESS: one["success"]} for one in probes}
        elif name == "gate":
            verdict = Verdict.model_validate(entry.details)
            if self._probes:
                self._each("the probes", lambda line: line.probed(self._probes))
            self._each("the verdict", lambda line: line.sink.conclude(verdict))

    def close(self, *, failed: bool) -> None:
        """Close the trackers that were told anything, after a last try to send what they did not take."""
        for line in self._lines:
            line.close(failed=failed)
        self._keep_marks()

    def _trained(self, part: str, entry: StepEntry) -> None:
        if self._marks.trained.get(part, entry.digest) != entry.digest:
            self._begin_new_run()
        for row in entry.details["updates"]:
            self._log(part, row)
        self._begun, self._before = self._before, max(self._curve, default=0)
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
        self._marks.probed.clear()
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
        self._each(f"optimizer step {step}", lambda line: line.log(step, metrics))

    def _each(self, what: str, act: Callable[[_Line], None]) -> None:
        for line in self._lines:
            line.send(what, lambda line=line: act(line))
        self._keep_marks()

    def _keep_marks(self) -> None:
        if self._marks != self._kept:
            self._marks.write(self._run_dir)
            self._kept = self._marks.model_copy(deep=True)


class _Line:
    """The connection to one tracker. What the tracker does not take waits, and is sent in order once the tracker takes it."""

    def __init__(self, sink: Sink, marks: Marks, warn: Callable[[str], None]) -> None:
        self.sink, self._marks, self._warn = sink, marks, warn
        self._logged: int | None = None  # last optimizer step in the tracker; None: not opened yet, or failed since
        self._waiting: deque[tuple[str, Callable[[], None]]] = deque()
        self._next_try = 0.0  # on the monotonic clock
        self._has_warned = False

    def send(self, what: str, act: Callable[[], None]) -> None:
        """Do something with the tracker, after what waits; if it failed a moment ago, only remember it."""
        self._waiting.append((what, act))
        if time.monotonic() >= self._next_try:
            self._try()

    def close(self, *, failed: bool) -> None:
        """End the tracker's run. A tracker that was told nothing is not opened."""
        if self._logged is None and not self._waiting:
            return
        self._waiting.append(("the end of the night", lambda: self.sink.close(failed=failed)))
        self._try()

    def _try(self) -> None:
        """Send what waits. After an error the rest waits for the next try."""
        began = time.monotonic()
        try:
            if self._logged is None:
                self._logged = self.sink.open(self._marks.attempt)
            while self._waiting:
                self._waiting[0][1]()
                self._waiting.popleft()
        except Exception as error:  # a tracker's client may raise anything, which must not end the night
            self._logged, now = None, time.monotonic()
            self._next_try = now + max(_PAUSE_SECONDS, _PAUSE_SHARE * (now - began))
            if not self._has_warned:
                self._has_warned = True
                self._warn(_warning(self.sink, self._waiting[0][0], error))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        assert self._logged is not None
        if step > self._logged:
            self.sink.log(step, metrics)
            self._logged = self._marks.steps[self.sink.name] = step

    def probed(self, curve: Mapping[int, Mapping[str, float]]) -> None:
        if self._marks.probed.get(self.sink.name, 0) < max(curve):
            self.sink.probed(curve)
            self._marks.probed[self.sink.name] = max(curve)

    def reopen(self) -> None:
        """Start another run: everything is sent again."""
        if self._logged is not None:
            self.send("the end of its run", lambda: self.sink.close(failed=True))
        self._waiting.clear()
        self._logged = None


def _warning(sink: Sink, what: str, error: Exception) -> str:
    why = error.what if isinstance(error, ClawpipeError) else str(error)
    fix = (error.fix if isinstance(error, ClawpipeError) else "") or sink.away
    first = without_secrets(" ".join(why.split()))[:_LONGEST]
    return (
        f"{sink.name} did not get {what} and everything after it ({type(error).__name__}: {first}). "
        f"The night goes on, and sends them once {sink.name} takes them: {fix}. If it ends before, run the same command again: "
        "nothing is computed twice, and status.json keeps every figure"
    )


def _part(step: str) -> str:
    return step.rpartition("/")[0]
