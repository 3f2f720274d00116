"""The process of one episode serves its calls in the thread that an environment's objects were made in."""

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from clawpipe.core.conversation.messages import Message
from clawpipe.play.environments.base import TaskItem, Verdict
from clawpipe.play.environments.episode_server import EpisodeServer
from clawpipe.play.environments.letters import LettersEnvironment

TURN, END, CLOSE = 2, 3, 4


class Quick:
    """A connection whose other side asks for the end of an episode before the answer to its turn has been sent whole."""

    def __init__(self, item: TaskItem) -> None:
        self.answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.taken = threading.Event()  # the request for the end: it is served, or waits
        self._item = item

    def makefile(self, mode: str) -> Any:
        return nullcontext(self._requests())

    def sendall(self, line: bytes) -> None:
        answer = json.loads(line)
        self.answers.put(answer)
        if answer.get("id") == TURN:
            self.taken.wait()
        if answer.get("id") == CLOSE:
            raise SystemExit

    def _requests(self) -> Iterator[str]:
        self.answers.get()  # the process id
        turn = {"messages": [Message("assistant", "x").as_dict()]}
        calls = {"start": {"item": self._item.as_row(), "seed": 0}, "respond": turn, "finish": {"reason": "done"}, "close": {}}
        for number, (call, arguments) in enumerate(calls.items(), start=1):
            yield json.dumps({"id": number, "call": call} | arguments)
            if number == END:
                self.taken.set()
            self.answers.get()
        threading.Event().wait()  # where the connection ends, the process does


class Threads(LettersEnvironment):
    """Notes the thread of each call of its episode."""

    connection: Quick

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def start(self, item: TaskItem) -> Any:
        self.seen.append(threading.get_ident())
        return self

    def respond(self, messages: Any) -> list[Message]:
        self.seen.append(threading.get_ident())
        return []

    def finish(self, reason: str) -> Verdict:
        self.seen.append(threading.get_ident())
        self.connection.taken.set()
        return Verdict({})

    def close(self) -> None:
        self.seen.append(threading.get_ident())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # both threads are ended by SystemExit
def test_a_quick_end_is_served_where_the_episode_began():
    environment = Threads()
    [item] = environment.items("train", 1, 0)
    connection: Any = Quick(item)
    environment.connection = connection
    server = EpisodeServer(environment, connection)
    serving = threading.Thread(target=server.run, daemon=True)
    serving.start()
    serving.join(60)
    server._loop.close()  # pyright: ignore[reportPrivateUsage]  # in its own process it ends with that
    assert environment.seen == [serving.ident] * 4
