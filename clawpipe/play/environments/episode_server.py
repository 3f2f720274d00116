"""Answer the calls of one episode in its own process, or those about items and recorded episodes in another.

Requests are JSON lines on a socket, `{"id": 1, "call": "respond", "messages": [...]}`; an answer is `{"id": 1, "ok": ...}`, or
it has `error`, a line about what the user's code raised, or `raised`, an error of clawpipe's own.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import queue
import random
import socket
import threading
import time
import traceback
from collections.abc import Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message
from clawpipe.core.user_code.extensions import in_one_line
from clawpipe.errors import ClawpipeError
from clawpipe.play.environments.base import Environment, Finishes, TaskItem, Verdict, WithHindsight, WithWarnings, distinct_items
from clawpipe.play.environments.calling import called
from clawpipe.play.environments.ending import checked, messages_of
from clawpipe.play.environments.made import answer_of, hindsight_of, items_of, verdict_of
from clawpipe.play.environments.process_tree import running_children

_MOMENT = 0.2  # seconds
_PAGE, _PAGE_CHARACTERS = 1000, 16 << 20  # items of an answer, and of their JSON
_AFTER = ("finish", "close")  # what may be asked while an earlier call still hangs


class EpisodeServer:
    """Serves one episode. Its calls run in the main thread, one after another, as if the episode were alone in its program.

    While one hangs, `finish` and `close` run beside it, so that the world can still be asked and put away. When the connection
    ends, so does the process, whatever it is doing.
    """

    def __init__(self, environment: Environment, connection: socket.socket) -> None:
        self._environment, self._connection = environment, connection
        self._episode: Any = None
        self._items: tuple[tuple[str, int, int], list[TaskItem]] | None = None
        self._requests: queue.SimpleQueue[JsonObject] = queue.SimpleQueue()
        self._busy = False
        self._sending = threading.Lock()
        self._loop = asyncio.new_event_loop()

    def run(self) -> None:
        """Serve until the connection ends."""
        threading.Thread(target=self._read, daemon=True).start()
        while True:
            line = self._line(self._requests.get())
            self._busy = False  # before the answer: the next request may come before `sendall` returns
            self._tell(line)

    def _read(self) -> None:
        self._tell(json.dumps({"pid": os.getpid()}))
        with self._connection.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                if self._busy and request["call"] in _AFTER:
                    self._tell(self._line(request))
                else:
                    self._busy = True
                    self._requests.put(request)
        os._exit(0)

    def _line(self, request: JsonObject) -> str:
        """Serve a request; return the answer as JSON."""
        name = {"id": request["id"]}
        try:
            return json.dumps(name | {"ok": self._answer(request)})
        except ClawpipeError as error:
            return json.dumps(name | {"raised": error.as_dict()})
        except BaseException as error:  # a user's code may exit as well
            return json.dumps(name | _described(error))

    def _tell(self, line: str) -> None:
        try:
            with self._sending:
                self._connection.sendall(line.encode() + b"\n")
        except OSError:
            os._exit(0)

    def _answer(self, request: JsonObject) -> Any:
        match request:
            case {"call": "start", "item": row, "seed": seed}:
                random.seed(seed)  # a fork's would be that of every other episode
                self._episode = self._settled(called(self._environment.start, TaskItem.from_row(row), seed=seed))
            case {"call": "respond"}:
                said = self._settled(self._episode.respond(messages_of(request)))
                answer = answer_of(said)
                return [[message.as_dict() for message in answer.messages], answer.reward, answer.done]
            case {"call": "finish", "reason": reason}:
                if isinstance(self._episode, Finishes):
                    verdict = verdict_of(self._settled(self._episode.finish(reason)))
                    return verdict and verdict.evidence
            case {"call": "close"}:
                self._settled(self._episode.close())
                return _left_running()
            case {"call": "verify"}:
                item, messages, verdict = _recorded(request)
                outcome = checked(self._settled(called(self._environment.verify, item, messages, verdict=verdict)))
                return [float(outcome.value), bool(outcome.success), outcome.reason, outcome.evidence]
            case {"call": "hindsight"} if isinstance(self._environment, WithHindsight):
                item, messages, verdict = _recorded(request)
                known = hindsight_of(self._settled(called(self._environment.hindsight, item, messages, verdict=verdict)))
                return known and [list(known.hints), [message.as_dict() for message in known.demonstration]]
            case {"call": "items", "start": start, "split": split, "count": count, "seed": seed}:
                return _page(self._made(split, count, seed)[start : start + _PAGE])
            case {"call": "distinct_items", "split": split}:
                return distinct_items(self._environment, split)
            case {"call": "warnings"}:
                return list(self._environment.warnings()) if isinstance(self._environment, WithWarnings) else []
        return None

    def _made(self, *wanted: Any) -> list[TaskItem]:
        """Return items, made once for all pages of them."""
        if self._items is None or self._items[0] != wanted:
            self._items = wanted, items_of(self._environment, *wanted)
        return self._items[1]

    def _settled(self, result: Any) -> Any:
        """Return what an async member returns, all of them in one event loop; of another member, what it has returned."""
        if not inspect.isawaitable(result):
            return result
        if self._loop.is_running():  # `finish` beside a call that hangs in it
            return asyncio.run_coroutine_threadsafe(_awaited(result), self._loop).result()
        return self._loop.run_until_complete(_awaited(result))


def _page(items: Sequence[TaskItem]) -> list[JsonObject]:
    """Return the rows of items, or of as many of the first ones as an answer may hold."""
    rows, size = list[JsonObject](), 0
    for item in items:
        rows.append(item.as_row())
        size += len(json.dumps(rows[-1]))
        if size > _PAGE_CHARACTERS:
            break
    return rows


def _left_running() -> list[str]:
    """Return the commands that this process's children still run, after a moment in which those that were told to can end."""
    end = time.monotonic() + _MOMENT
    while (left := running_children()) and time.monotonic() < end:
        time.sleep(_MOMENT / 10)
    return left


def _recorded(request: JsonObject) -> tuple[TaskItem, list[Message], Verdict | None]:
    """Return what is recorded of an episode, from a request."""
    verdict = Verdict(request["verdict"]) if request["verdict"] is not None else None
    return TaskItem.from_row(request["item"]), messages_of(request), verdict


def _described(error: BaseException) -> JsonObject:
    """Return an error's class, what follows it in one line, and its traceback."""
    kind, trace = type(error).__name__, "".join(traceback.format_exception(error))
    return {"error": in_one_line(error).removeprefix(kind).removeprefix(": ").lstrip(), "kind": kind, "trace": trace}


async def _awaited(result: Any) -> Any:
    return await result
