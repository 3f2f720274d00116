"""A version of the embedded engine: a loaded model and its engine's thread."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from clawpipe.errors import DataError
from clawpipe.model.engines.sampling import Token
from clawpipe.serve.serving.choice import Choice, Ending
from clawpipe.serve.serving.engine_thread import EngineThread, Event, Job
from clawpipe.serve.serving.errors import RETRY_AFTER_SECONDS
from clawpipe.serve.serving.evidence import Asker
from clawpipe.serve.serving.policy import ServedPolicy
from clawpipe.serve.serving.served import Served
from clawpipe.serve.serving.turn import Delta
from clawpipe.serve.serving.versions import NOBODY, Version

AGREEMENT = (
    1e-2  # nats between a sampled token's log-prob and the plain pass's; float32 differs by 1e-5, bfloat16 by less than this
)


class Live(Version):
    """One loaded version, and its engine's thread."""

    def __init__(self, policy: ServedPolicy) -> None:
        super().__init__(policy.served)
        self.policy, self.thread = policy, EngineThread(policy.batch)
        self._preparing = 0
        self._prepared = asyncio.Event()

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Keep the version open while a request is prepared for it."""
        self._preparing += 1
        self._prepared.clear()
        try:
            yield
        finally:
            self._preparing -= 1
            if not self._preparing:
                self._prepared.set()

    async def close_when_unused(self) -> None:
        """Wait for the last answers of a version that gets no new requests, then end its thread."""
        if self._preparing:
            await self._prepared.wait()
        await self.thread.drained()
        await self.close()

    async def close(self) -> None:
        await self.thread.close()

    def cancel(self) -> None:
        self.thread.cancel()

    @property
    def pace(self) -> dict[str, str]:
        """Headers by which OpenAI's clients pace themselves: how many answers may run or wait, and how many more would be taken."""
        left = max(0, self.thread.limit - self.thread.answers)
        reset = "0s" if left else f"{RETRY_AFTER_SECONDS}s"
        counts = {"limit": str(self.thread.limit), "remaining": str(left), "reset": reset}
        return {f"x-ratelimit-{name}-requests": value for name, value in counts.items()}

    def keep_ended(self, keep: bool) -> None:
        self.thread.keep_ended(keep)

    def submit(self, choices: Sequence[Choice], asker: Asker = NOBODY, limit: int | None = None, *, is_own: bool = True) -> Job:
        """Let answers join. Raises BusyError if too many are waiting.

        Args:
            asker: who asked.
            limit: of tokens, that the request itself names.
            is_own: whether this version answers; else a user's own model does, which says nothing of this one.
        """
        job = self.thread.submit(choices, partial(self._ended, asker, limit) if is_own else _uncounted)
        prompts = {id(choice.row.prompt): choice.row.prompt for choice in choices}
        self.counts["prompt"] += sum(map(len, prompts.values()))
        return job

    def _ended(self, asker: Asker, limit: int | None, event: Event | Exception, has_content: bool) -> None:
        """Count an answer that ended; `has_content`: whether it has content or calls."""
        ending = None if isinstance(event, Exception) or not isinstance(event.part, Ending) else event.part
        at_limit = ending is not None and ending.finish_reason == "length"
        constrained = ending is not None and ending.constrained  # where a grammar ends an answer, it says nothing of the model
        cut, runaway = at_limit and (limit is not None or constrained), at_limit and limit is None and not constrained
        empty = ending is not None and not cut and not has_content and not ending.calls
        self.count({"total": True, "failed": ending is None, "empty": empty, "runaway": runaway, "cut": cut}, asker)
        self.counts["constrained"] += constrained
        self.counts["misfit"] += bool(ending and ending.misfits)
        self.counts["sampled"] += ending.tokens if ending else 0


def _uncounted(event: Event | Exception, has_content: bool) -> None:
    """Count nothing."""


def loader(device: str = "auto", apart: bool = False) -> Callable[[Served], Awaitable[Live]]:
    """Return a function that loads a version on a device and checks it; it raises DataError if the version cannot serve.

    `apart`: see `ServedPolicy`.
    """

    async def load(served: Served) -> Live:
        live = Live(await asyncio.to_thread(ServedPolicy, served, device, apart))
        try:
            await try_out(live)
        except BaseException:
            await live.close()
            raise
        return live

    return load


async def try_out(live: Live) -> None:
    """Let a version answer a fixed prompt.

    Raises:
        DataError: its log-probs are not those of a plain pass of its model, or no numbers.
    """
    choices = live.policy.canary()
    parts = [event.part async for event in live.thread.submit(choices).events()]
    tokens: list[Token] = [token for part in parts if isinstance(part, Delta) for token in part.tokens]
    row = choices[0].row
    plain = await asyncio.to_thread(live.policy.score, [*row.prompt, *row.turn], len(row.prompt))
    apart = max((abs(token.logprob - own) for token, own in zip(tokens, plain, strict=True)), default=math.nan)
    if not apart <= AGREEMENT:  # also where it is no number
        where = f"version {live.served.version}"
        raise DataError(f"its answer to a fixed prompt differs from its model's plain pass by {apart:.2g} nats", where)
