"""The live demo: hours of conversations with a served model, a night after each, and the swap, while users go on talking.

Server, ingest and nights are the commands that anybody would run, as processes of their own. All files are in the demo's own home;
what has happened is in `talks.jsonl` and `nights.jsonl` there, from which an interrupted demo goes on.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

from clawpipe.core.config import load_config
from clawpipe.core.services.keeper import ending
from clawpipe.core.services.service import Service, running
from clawpipe.core.store.home import Home
from clawpipe.core.store.log import AppendLog
from clawpipe.core.system import processes
from clawpipe.core.system.ports import LOOPBACK, free_port
from clawpipe.errors import BusyError, from_exit_code
from clawpipe.play.environments.base import Environment, TaskItem, distinct_items
from clawpipe.play.environments.shop import ShopEnvironment
from clawpipe.record.nights.status import NightStatus, read_status
from clawpipe.start.simulation.conversation import MOST_TOKENS, Harness, Talk
from clawpipe.start.simulation.crowd import Crowd
from clawpipe.start.simulation.headline import headline
from clawpipe.start.simulation.heard import live_night
from clawpipe.start.simulation.report import LiveNight, LiveReport, gain_of, hours_of, plot
from clawpipe.start.simulation.words import Arm

MODEL = "clawpipe-live"
_LOAD_SECONDS = 900.0  # the first time, the model is converted
_SWAP_SECONDS, _SWAP_TIMES = 120.0, 6.0  # until a promoted version is in service: at least, and in times of the first loading
_GOALS = 10_000  # questions: one user alone asks some 1,000 in a night of half an hour
_MOST_FAILURES = 8  # of requests, before the demo gives up
_IMITATING = ("scorers=[]", "train.method=sft", "curation.imitate=any", "curation.credit=group")  # without a judge
_TELL_EVERY = 32  # conversations


@dataclass(frozen=True)
class Plan:
    """How long a live demo takes.

    Attributes:
        config: of the nights.
        base: model that answers before the first promotion.
        cycles: hours that a night follows.
        talks: conversations of such an hour, before its night begins.
        last: conversations of the hour after the last night.
        users: who talk at once.
        overrides: `block.field=value` on top of the config.
        most_tokens: of a turn of the model.
        arm: of an experiment, see `clawpipe.start.simulation.words.reaction`; without a judge the nights imitate all that was said.
        at_night: users who talk while a night trains.
    """

    config: Path
    seed: int = 0
    base: str = "smollm2-135m-instruct"
    cycles: int = 3
    talks: int = 256
    last: int = 160
    users: int = 32
    overrides: tuple[str, ...] = ()
    most_tokens: int = MOST_TOKENS
    arm: Arm = "as is"
    at_night: int = 1


@dataclass
class LiveDemo:
    """One live demo in a home of its own.

    Args:
        tell: called with lines that show the progress.
    """

    home: Home
    plan: Plan
    tell: Callable[[str], None]
    environment: Environment = field(default_factory=ShopEnvironment)

    def __post_init__(self) -> None:
        self._talk_log = AppendLog(self.home.root / "talks.jsonl", Talk)
        self._night_log = AppendLog(self.home.root / "nights.jsonl", LiveNight)
        self.talks, self.nights = self._talk_log.read(), self._night_log.read()
        self._key = secrets.token_urlsafe(32)
        self._successes = [talk.success for talk in self.talks]
        self._patience, self._lost = _SWAP_SECONDS, ""
        self._running: subprocess.Popen[bytes] | None = None

    def run(self) -> LiveReport:
        """Go on from what has happened to the end.

        Raises:
            ClawpipeError: the server, or a night, failed.
        """
        started = time.monotonic()
        failed: list[str] = []
        if not self._is_done:
            with self._served() as url, self._crowd(url) as crowd:
                failed = crowd.failures
                for _ in range(len(self.nights), self.plan.cycles):
                    self._chat(crowd, self.plan.talks)
                    self._night(crowd)
                self._chat(crowd, self.plan.last)
        return self._report(failed, (time.monotonic() - started) / 60)

    @property
    def _log(self) -> Path:
        """Return the log file of the server and of the commands."""
        return self.home.logs / "live.log"

    @property
    def _is_done(self) -> bool:
        return len(self.nights) >= self.plan.cycles and len(self._of(self.plan.cycles)) >= self.plan.last

    def _of(self, hour: int) -> list[Talk]:
        return [talk for talk in self.talks if talk.hour == hour]

    def _chat(self, crowd: Crowd, wanted: int) -> None:
        """Let all users talk until the hour has so many conversations; then only one goes on."""
        self.tell(f"hour {crowd.hour + 1}: {self.plan.users} users talk")
        crowd.let(self.plan.users)
        talked = crowd.wait(lambda: bool(self._lost) or len(crowd.failures) > _MOST_FAILURES or len(self._of(crowd.hour)) >= wanted)
        self._require_server()
        if len(crowd.failures) > _MOST_FAILURES:
            raise BusyError(f"{len(crowd.failures)} requests failed: {crowd.failures[-1]}", str(self._log))
        if not talked:
            raise BusyError(f"the users have asked all of their {_GOALS} questions", str(self.home.root))
        crowd.let(self.plan.at_night)
        crowd.settle()

    def _night(self, crowd: Crowd) -> None:
        """Read in what was captured, run a night on it, and wait until the users get its model if it was promoted."""
        name = f"live-{crowd.hour + 1}"
        self.tell(f"{name}: a night on what was said, while one user goes on talking")
        self._command("ingest", str(self.home.root / "captured"))
        imitating = _IMITATING if self.plan.arm == "no judge" else ()
        settings = [*self.plan.overrides, *imitating, f"night={name}", f"seed={self.plan.seed}"]
        words = [word for setting in settings for word in ("-o", setting)]
        status = NightStatus.model_validate_json(self._command("run", "--config", str(self.plan.config), *words, "--json"))
        night = live_night(self.home, status, self.talks)
        self.tell(f"{name}: {night.verdict}. {night.reason}")
        crowd.let(max(1, self.plan.at_night))
        if night.version and not crowd.wait(lambda: bool(self._lost) or self.talks[-1].version == night.version, self._patience):
            raise BusyError(f"version {night.version} was not in service after {self._patience:.0f} s", str(self._log))
        self._require_server()
        self._night_log.append(night)
        self.nights.append(night)
        crowd.hour += 1

    def _command(self, *words: str) -> str:
        """Run a command of clawpipe on the demo's home, and return what it prints."""
        with self._log.open("ab") as log:
            process = processes.spawn(_clawpipe(*words), env=self._environ, stdout=-1, stderr=None if words[0] == "run" else log)
            self._running = process
            if self._lost:  # before there was anything to end
                process.terminate()
            try:
                printed = process.stdout.read().decode() if process.stdout else ""
                code = process.wait()
            finally:
                self._running = None
                processes.stop(process)
        self._require_server()
        if code:
            message = _error(printed)
            raise from_exit_code(code, message or f"`clawpipe {words[0]}` ended with code {code}", str(self._log))
        return printed

    @property
    def _environ(self) -> dict[str, str]:
        return {**os.environ, "CLAWPIPE_HOME": str(self.home.root), "CLAWPIPE_API_KEY": self._key}

    @contextmanager
    def _served(self) -> Iterator[str]:
        """Serve the model behind a gateway; yield the address that clients use."""
        port, alias = free_port(), f"models:/{MODEL}@champion"
        words = ["serve", alias, "--base", self.plan.base, "--capture", "--session-seconds", "0", "--port", str(port)]
        self.tell(
            f"serving {alias} at http://{LOOPBACK}:{port}/v1, {self.plan.base} until there is one; all files in {self.home.root}"
        )
        with running("the server", _clawpipe(*words), self._log, self._environ) as server:
            began = time.monotonic()
            server.wait_healthy(f"http://{LOOPBACK}:{port}/healthz", _LOAD_SECONDS)
            self._patience = patience(time.monotonic() - began)
            with self._watched(server):
                yield f"http://{LOOPBACK}:{port}/v1"

    @contextmanager
    def _watched(self, server: Service) -> Iterator[None]:
        """End what the demo waits for as soon as its server ends by itself."""
        over = threading.Event()

        def watch() -> None:
            code = server.process.wait()
            if over.is_set():
                return
            self._lost = f"the server {ending(code)}; nobody is answered any more, so the demo ends"
            self.tell(self._lost)
            if running := self._running:
                running.terminate()  # its guard ends it with all its children

        threading.Thread(target=watch, daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _require_server(self) -> None:
        if self._lost:
            raise BusyError(self._lost, str(self._log))

    def _crowd(self, url: str) -> Crowd:
        plan = self.plan
        talker = partial(Harness, self.environment, url, self._key, MODEL, plan.most_tokens, plan.arm, self._successes)
        return Crowd(self.plan.users, talker, self._goals(), self._heard, hour=len(self.nights), seed=self.plan.seed)

    def _goals(self) -> Iterator[tuple[int, TaskItem]]:
        """Yield goals that nobody has had yet. Held-out questions are on the other side of the environment's split."""
        had = {talk.item for talk in self.talks}
        most = min(_GOALS, distinct_items(self.environment, "train") or _GOALS)
        goals = enumerate(self.environment.items("train", most, self.plan.seed))
        return ((place, goal) for place, goal in goals if goal.item_id not in had)

    def _heard(self, talk: Talk) -> None:
        self._talk_log.append(talk)
        self.talks.append(talk)
        self._successes.append(talk.success)
        if not len(self.talks) % _TELL_EVERY:
            last = list(islice(reversed(self.talks), _TELL_EVERY))
            satisfied = sum(one.mood == "praise" for one in last) / len(last)
            self.tell(f"  {len(self.talks)} conversations; of the last {len(last)}, {satisfied:.0%} ended in praise")

    def _report(self, failed: list[str], minutes: float) -> LiveReport:
        hours, file = hours_of(self.talks, self.nights), self.home.root / "live.png"
        plot(hours, file)
        rules = load_config(self.plan.config, list(self.plan.overrides)).gate
        found = headline(self.home, read_status(self.home, self.nights[-1].night), rules) if self.nights else None
        return LiveReport(
            seed=self.plan.seed,
            hours=hours,
            plot=str(file),
            headline=found,
            gain=gain_of(hours),
            failed_requests=len(failed),
            minutes=round(minutes, 2),
        )


def patience(loading: float) -> float:
    """Return the seconds to wait for a promoted version, where the first model took `loading` seconds until it answered."""
    return max(_SWAP_SECONDS, _SWAP_TIMES * loading)


def _clawpipe(*words: str) -> list[str]:
    return [sys.executable, "-m", "clawpipe", *words]


def _error(printed: str) -> str:
    """Return what a command with --json says went wrong; "" if it says nothing."""
    try:
        return str(json.loads(printed).get("what", ""))
    except (ValueError, AttributeError):
        return ""
