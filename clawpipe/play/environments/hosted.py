"""A user's environment in a process of its own, as its parent sees it, with a deadline for each call of an episode."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from clawpipe.core.basics.json_types import JsonObject, Options
from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.core.system import processes
from clawpipe.core.user_code.extensions import CallError, in_one_line
from clawpipe.errors import ClawpipeError, ConfigError, error_from
from clawpipe.play.environments.base import Answer, Environment, Hindsight, Outcome, Reason, TaskItem, Verdict
from clawpipe.play.environments.calling import CallTimeoutError, EndedError
from clawpipe.play.environments.discovery import has_own_process, load_environment, takes_python
from clawpipe.play.environments.host import EPISODE, KILL, ORDER
from clawpipe.play.environments.interpreter import SETTING, bootstrap
from clawpipe.play.environments.socket_lines import Lines

_MOST_TIMEOUTS = 2  # after which an episode is killed without a close
_TO_START = 120.0  # seconds, for imports on a busy machine
_NO_IMPORT = "it does not import"


class HostedEnvironment:
    """An environment whose episodes run in processes of their own, forks of one that has made it. Threads may play them at once.

    Args:
        name, options: as in a night's settings.
        seconds: that each call may take.
        python: that the processes run in; None: this one.

    Attributes:
        left_running: commands that episodes had not ended when they were closed, and that were killed.
        slowest: seconds of the longest call, by its name.

    Raises:
        NotFoundError, ConfigError: see `load_environment` and `interpreter`; or it is not made within two minutes.
    """

    def __init__(self, name: str, options: Options, seconds: float, python: str | None = None) -> None:
        self._given: JsonObject = {"name": name, "options": options}
        self.seconds, self._python = seconds, python
        self._lock, self._asking = threading.Lock(), threading.Lock()
        self._judge: Calls | None = None
        self.left_running: list[str] = []
        self.slowest: dict[str, float] = {}
        self._process, self._control, told = self._started()
        self.name: str = told["name"]
        self.kind: str = told["kind"]
        self._tools = [ToolSpec(**tool) for tool in told["tools"]]
        self._preamble = [Message.from_dict(row) for row in told["preamble"]]

    def tools(self) -> list[ToolSpec]:
        return list(self._tools)

    def preamble(self) -> list[Message]:
        return list(self._preamble)

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return the environment's items, see `Environment.items`.

        Raises:
            ConfigError: the environment raised something else, or took too long.
        """
        wanted, rows = {"split": split, "count": count, "seed": seed}, list[JsonObject]()
        while page := self._told("items", **wanted, start=len(rows)):
            rows += page
        return [TaskItem.from_row(row) for row in rows]

    def distinct_items(self, split: str) -> int | None:
        """Return how many different items there are, see `base.distinct_items`. Raises as `items`."""
        return self._told("distinct_items", split=split)

    def warnings(self) -> list[str]:
        """Return what the environment warns of; nothing if it never does. Raises as `items`."""
        return self._told("warnings")

    def start(self, item: TaskItem, seed: int) -> HostedEpisode:
        """Begin an episode.

        Raises:
            CallError: the environment raised.
            CallTimeoutError: it took too long.
        """
        return HostedEpisode(self, item, seed)

    def verify(self, item: TaskItem, messages: Sequence[Message], verdict: Verdict | None) -> Outcome:
        """Return what the environment says of a recorded episode.

        Raises:
            CallError: the environment raised.
            CallTimeoutError: it took too long.
        """
        return Outcome(*self._judged("verify", item, messages, verdict))

    def hindsight(self, item: TaskItem, messages: Sequence[Message], verdict: Verdict | None) -> Hindsight | None:
        """Return the environment's hindsight about a recorded episode, if it has any. Raises as `verify`."""
        if (known := self._judged("hindsight", item, messages, verdict)) is None:
            return None
        return Hindsight(tuple(known[0]), tuple(Message.from_dict(row) for row in known[1]))

    def _judged(self, call: str, item: TaskItem, messages: Sequence[Message], verdict: Verdict | None) -> Any:
        """Ask about a recorded episode."""
        recorded = {"item": item.as_row(), "messages": [message.as_dict() for message in messages]}
        return self._ask(call, **recorded, verdict=verdict and verdict.evidence)

    def _told(self, call: str, **arguments: Any) -> Any:
        """Ask the environment about itself: what it raises ends more than a row."""
        try:
            return self._ask(call, **arguments)
        except CallTimeoutError as error:
            fix = "raise environment.call_timeout, or let it do less"
            raise ConfigError(f"its {call}: {error}", self._given["name"], fix) from None
        except CallError as error:
            what = str(error) if isinstance(error, EndedError) else in_one_line(error)
            fix = "fix it, then run the same command again"
            raise ConfigError(f"its {call} raised {what}", self._given["name"], fix) from error

    def _ask(self, call: str, **arguments: Any) -> Any:
        """Ask outside of an episode: all such calls in one process, until one hangs or ends it."""
        with self._asking:
            self._judge = self._judge or Calls(self)
            try:
                return self._judge.call(call, **arguments)
            except (CallTimeoutError, EndedError):
                self._judge.end()
                self._judge = None
                raise

    def connect(self) -> socket.socket:
        """Return the connection to a new episode's process; the process that forks them is started again if it has ended."""
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            try:
                socket.send_fds(self._control, [ORDER.pack(EPISODE, 0)], [theirs.fileno()])
            except OSError:
                self._stop()
                self._process, self._control, _ = self._started()
                socket.send_fds(self._control, [ORDER.pack(EPISODE, 0)], [theirs.fileno()])
        return ours

    def kill(self, process: int) -> None:
        """End an episode's process, and whatever it has started."""
        with self._lock:
            try:
                self._control.sendall(ORDER.pack(KILL, process))
            except OSError:
                return  # the host has ended, and its episodes with it

    def close(self) -> None:
        """End all episodes and the process that has made the environment."""
        if self._judge:
            self._judge.end()
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        self._control.close()
        processes.finish(self._process, processes.GRACE_SECONDS)

    def _started(self) -> tuple[subprocess.Popen[bytes], socket.socket, JsonObject]:
        command, variables = bootstrap(self._python, "clawpipe.play.environments.host")
        control, theirs = socket.socketpair()
        with theirs:
            process = processes.spawn(command, env=variables, stdin=theirs.fileno(), stdout=2)  # what it prints belongs in the log
        lines = Lines(control)
        try:
            lines.write(self._given, _TO_START)
            told = lines.read(_TO_START)
        except (CallTimeoutError, CallError) as error:
            control.close()
            processes.stop(process)
            raise ConfigError(f"it cannot be made: {error}", self._given["name"], "run it with python first") from None
        if "raised" in told:
            control.close()
            processes.finish(process, processes.GRACE_SECONDS)
            raise self._where_it_runs(error_from(told["raised"]))
        return process, control, told

    def _where_it_runs(self, error: ClawpipeError) -> ClawpipeError:
        """Return an error of a file's import with the Python that imports it."""
        if self._python is None or not error.what.startswith(_NO_IMPORT):
            return error
        return ConfigError(error.what, error.where, f"install what it needs there: {self._python} -m pip install ...")


class HostedEpisode:
    """An episode in a process of its own."""

    def __init__(self, environment: HostedEnvironment, item: TaskItem, seed: int) -> None:
        self._environment = environment
        self._calls = Calls(environment)
        try:
            self._calls.call("start", item=item.as_row(), seed=seed)
        except BaseException:
            self._calls.end()
            raise

    def respond(self, messages: Sequence[Message]) -> Answer:
        rows, reward, done = self._calls.call("respond", messages=[message.as_dict() for message in messages])
        return Answer([Message.from_dict(row) for row in rows], reward, done)

    def finish(self, reason: Reason) -> Verdict | None:
        evidence = self._calls.call("finish", reason=reason)
        return Verdict(evidence) if evidence is not None else None

    def close(self) -> None:
        try:
            if self._calls.can_be_asked:
                self._environment.left_running += self._calls.call("close")
        finally:
            self._calls.end()


class Calls:
    """The calls to one forked process of an environment, each with the environment's deadline."""

    def __init__(self, environment: HostedEnvironment) -> None:
        self._environment = environment
        self._lines = Lines(environment.connect())
        self._made = self._timeouts = 0
        self._process: int | None = None
        try:
            self._process = self._lines.read(_TO_START)["pid"]
        except BaseException:
            self.end()
            raise

    @property
    def can_be_asked(self) -> bool:
        """Whether the process is there, and has not hung twice."""
        return not self._lines.ended and self._timeouts < _MOST_TIMEOUTS

    def call(self, call: str, **arguments: Any) -> Any:
        """Return what the process answers.

        Raises:
            CallError: the user's code raised; CallTimeoutError: it took too long; EndedError: its process has ended.
        """
        self._made += 1
        seconds = self._environment.seconds
        end = time.monotonic() + seconds
        try:
            self._lines.write({"id": self._made, "call": call} | arguments, seconds)
            while (answer := self._lines.read(seconds, end))["id"] != self._made:
                pass  # that of an earlier call, which came too late
        except CallTimeoutError:
            self._timeouts += 1
            raise
        finally:
            taken = time.monotonic() - end + seconds
            self._environment.slowest[call] = max(taken, self._environment.slowest.get(call, 0.0))
        return _ok(answer)

    def end(self) -> None:
        """End the process, and whatever it has started."""
        self._lines.close()
        if self._process:
            self._environment.kill(self._process)


def _ok(answer: JsonObject) -> Any:
    if "raised" in answer:
        raise error_from(answer["raised"])
    if "error" in answer:
        error = CallError.named(answer["kind"], answer["error"])
        error.add_note(answer["trace"])
        raise error
    return answer["ok"]


@contextmanager
def open_environment(
    name: str, options: Options, seconds: float, python: str | None = None
) -> Iterator[Environment | HostedEnvironment]:
    """Yield an environment: a user's, or one that starts programs, in processes of its own, see `HostedEnvironment`; others here.

    Raises:
        NotFoundError, ConfigError: it cannot be made; or it is a built-in one, and `python` is given.
    """
    if python and not takes_python(name):
        raise ConfigError(f"{name} is built in, and runs in clawpipe's own Python", SETTING, "leave it out")
    if not has_own_process(name):
        yield load_environment(name, options)
        return
    hosted = HostedEnvironment(name, options, seconds, python)
    try:
        yield hosted
    finally:
        hosted.close()
