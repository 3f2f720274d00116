"""An engine on a server as the batch that answers share: the server batches, and each answer's tokens come when it is whole."""

from __future__ import annotations

import json
import queue
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from clawpipe.core.config.engine import EngineSpec
from clawpipe.model.engines.base import Completion, Engine, Likelihood, Sampling
from clawpipe.model.engines.rows import Row
from clawpipe.model.engines.sampling import Token
from clawpipe.serve.serving.sampler import Sampler, end_tokens

_LOOK_SECONDS = 0.02  # how long a step waits, in which nobody can join


class RemoteBatch:
    """Asks for a whole turn of each row, as many at a time as the server is to get.

    Args:
        threads: that ask.
    """

    def __init__(self, engine: Engine, threads: ThreadPoolExecutor, at_once: int) -> None:
        self.rows: list[Row] = []
        self.at_once = at_once
        self._engine, self._threads = engine, threads
        self._done: queue.SimpleQueue[tuple[Row, Future[Completion]]] = queue.SimpleQueue()
        self._left: dict[Row, deque[Token]] = {}  # tokens of whole turns that were not handed on

    @property
    def idle(self) -> bool:
        return not self.rows

    def add(self, row: Row) -> None:
        """Ask for a row's turn."""
        self.rows.append(row)
        future = self._threads.submit(self._sample, row)
        future.add_done_callback(lambda done: self._done.put((row, done)))

    def remove(self, row: Row) -> None:
        """Forget a row; what the server still samples of it is not read."""
        self._left.pop(row, None)
        with suppress(ValueError):
            self.rows.remove(row)

    def keep_ended(self, keeps: bool) -> None:
        """Nothing is kept here."""

    def step(self) -> list[tuple[Row, Token]]:
        """Return a token of each row whose turn is whole.

        Raises:
            Exception: whatever the engine raised.
        """
        self._take_done()
        tokens: list[tuple[Row, Token]] = []
        for row, left in list(self._left.items()):
            token = left.popleft()
            row.append(token.id)
            tokens.append((row, token))
            if not left:
                self.remove(row)
        return tokens

    def _take_done(self) -> None:
        """Read whole turns: all that are there, or wait a moment for one."""
        with suppress(queue.Empty):
            while True:
                row, done = self._done.get(block=not self._left, timeout=_LOOK_SECONDS)
                if row in self.rows:
                    turn = done.result()
                    pairs = zip(turn.ids, turn.logprobs, strict=True)
                    self._left[row] = deque(Token(id, logprob, Likelihood(logprob, [])) for id, logprob in pairs)

    def _sample(self, row: Row) -> Completion:
        sampling = Sampling(row.sampling.temperature, row.sampling.max_new_tokens, row.sampling.stop_ids)
        return self._engine.begin([row.prompt]).sample({0: row.seed}, sampling)[0]


@contextmanager
def remote_sampler(engine: Engine, base: Path, spec: EngineSpec) -> Iterator[Sampler]:
    """Yield what samples with an engine that is asked for whole turns.

    Args:
        base: directory of the base model, whose settings name its vocabulary and its end markers.
    """
    with ThreadPoolExecutor(spec.concurrency) as threads:
        batch = RemoteBatch(engine, threads, spec.concurrency)
        settings, generation = _settings(base / "config.json"), _settings(base / "generation_config.json")
        size = settings.get("vocab_size") or settings.get("text_config", {}).get("vocab_size")
        yield Sampler(batch, engine.context, int(size), end_tokens(generation.get("eos_token_id")))


def _settings(file: Path) -> dict[str, Any]:
    return json.loads(file.read_bytes()) if file.is_file() else {}
