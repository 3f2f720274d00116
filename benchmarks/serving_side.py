"""A server of benchmarks/serving.py: `serving_side.py batched|one-by-one THREADS` prints its address and serves."""

from __future__ import annotations

import sys

import torch

from clawpipe.model.engines.continuous import ContinuousBatch
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.engines.rows import Row
from clawpipe.model.engines.sampling import Token, sample_tokens
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.serve.serving.access import listen
from clawpipe.serve.serving.found import Served
from clawpipe.serve.serving.live import Live
from clawpipe.serve.serving.policy import ServedPolicy
from clawpipe.serve.serving.server import Server
from clawpipe.serve.serving.versions import Versions


class OneByOne(ContinuousBatch):
    """The engine of the nights, one row at a time."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        super().__init__(EmbeddedEngine(resolve_base("random").path, None, device="cpu"), 0)  # the queue is what is wanted
        self._engine, self._conversations = engine, None

    @property
    def at_once(self) -> int:
        return 1

    @torch.inference_mode()
    def step(self) -> list[tuple[Row, Token]]:
        if not self.rows and (row := self.queue.first()):
            self.queue.pop()
            self.rows.append(row)
            self._conversations = self._engine.begin([row.prompt])
        if not self.rows or self._conversations is None:
            return []
        [row] = self.rows
        [token] = sample_tokens(self._conversations._logits([0]), [row.place()])
        self._conversations.extend({0: [token.id]})
        row.append(token.id)
        if row.ended:
            self.rows.remove(row)
        return [(row, token)]

    def remove(self, row: Row) -> None:
        if row in self.rows:
            self.rows.remove(row)
        else:
            self.queue.remove(row)


def main(kind: str, threads: int) -> None:
    torch.set_num_threads(threads)
    base = resolve_base("smollm2-135m-instruct").path
    spec = PolicySpec(base=str(base), adapter=None, dtype="float32", tool_call_format="pythonic", policy_version="a" * 16)
    policy = ServedPolicy(Served("agent", "1", "d" * 64, spec), "cpu")
    if kind == "one-by-one":
        policy.batch = OneByOne(EmbeddedEngine(base, None, device="cpu"))
    listener = listen("127.0.0.1", 0)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    Server(Versions(Live(policy)), "sk-a-benchmark-key", log_level="error").run([listener])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
