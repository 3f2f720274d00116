"""Ask a judge at an OpenAI-compatible endpoint: each try has a deadline and is paid for, and a dead endpoint is left alone."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

import anyio
import httpx

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.retry_after import LONGEST_WAIT, asked_to_wait
from clawpipe.core.conversation.messages import Message
from clawpipe.data.importers.message import write_chat
from clawpipe.errors import BusyError, ConfigError
from clawpipe.model.engines.servers import RefusedRequestError
from clawpipe.play.judging.breaker import Breaker
from clawpipe.play.judging.said import Said, read_said, unreadable
from clawpipe.play.judging.spending import Budget, Ledger, Tokens, estimated

TRIES = 6  # of one question
_BUSY = (408, 409, 425, 429, 503, 529)  # statuses of an endpoint that will answer later, as any other failure of a server
_THIS_ONE = (400, 413, 422, 501)  # of one request: it is too long, say, or has a field that is not known there
_FLAGGED = 403  # of one request where others were answered: its content is not allowed; else the key is wrong
_ELSEWHERE = (301, 302, 303, 307, 308)
_LIMIT, _NEWER_LIMIT = "max_tokens", "max_completion_tokens"  # OpenAI's newer models refuse the older name
_SEED = re.compile(r"\bseed\b")
_FORM = re.compile(r"response_format|schema|grammar|guided", re.IGNORECASE)  # how servers name what they cannot compile
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_LARGEST = 8 << 20  # bytes of an answer
_TEMPLATE = 32  # tokens that a chat template adds to two messages
_KEY_NAME = "OPENAI_API_KEY"

T = TypeVar("T")


@dataclass
class Meter:
    """The most that a request can cost: a token has a byte or more. Once an endpoint has counted, twice its own ratio is enough."""

    max_tokens: int
    _per_byte: float = 0.0  # the largest ratio so far
    _longest: int = 0  # reply so far: some count hidden thoughts that no limit holds

    def most(self, size: int) -> Tokens:
        prompt = size if not self._per_byte else min(size, 2 * self._per_byte * size)
        return Tokens(int(max(prompt, self._per_byte * size)) + _TEMPLATE, max(self.max_tokens, self._longest))

    def counted(self, size: int, tokens: Tokens) -> None:
        self._per_byte = max(self._per_byte, tokens.prompt / size)
        self._longest = max(self._longest, tokens.reply)


@dataclass
class Endpoint:
    """A judge's endpoint, for the tasks of one event loop.

    Attributes:
        url: up to and with /v1.
        judge: name under which it spends.
        timeout: seconds of a whole try, from the connection to the last byte.
        concurrency: requests at once.
    """

    url: str
    model: str
    judge: str
    temperature: float
    max_tokens: int
    timeout: float
    concurrency: int
    ledger: Ledger
    budget: Budget
    key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        headers = {"Accept-Encoding": "identity"}  # what is compressed may be a thousand times as long as what is read
        headers |= {"Authorization": f"Bearer {self.key}"} if self.key else {}
        limits = httpx.Limits(max_connections=self.concurrency, max_keepalive_connections=self.concurrency)
        self._client = httpx.AsyncClient(headers=headers, timeout=self.timeout, limits=limits)
        self._breaker, self._meter = Breaker(self.url), Meter(self.max_tokens)
        self._formatted: bool | None = None  # whether it takes response_format; None: not known yet
        self._limit, self._seeded = _LIMIT, True  # the name that it has for max_tokens, and whether it takes a seed
        self._under_way, self._settled = 0, anyio.Event()

    @property
    def is_dead(self) -> bool:
        return self._breaker.is_open

    async def ask(self, messages: Sequence[Message], seed: int, form: JsonObject) -> Said:
        """Return the answer to a question.

        Args:
            form: JSON Schema of the answer, for an endpoint that has `response_format`.

        Raises:
            RefusedRequestError: it does not answer this question.
            ConfigError: it answers none.
            BusyError: it does not answer, after all tries; or the budget does not suffice.
        """
        body: JsonObject = {"model": self.model, "messages": write_chat(messages), "temperature": self.temperature}
        if self._formatted is not False:
            try:
                said = await self._sampled(body | {"response_format": _response_format(form)}, seed)
                self._formatted = True
                return said
            except RefusedRequestError:
                if self._formatted:
                    raise
        said = await self._sampled(body, seed)
        self._formatted = bool(self._formatted)
        return said

    async def _sampled(self, body: JsonObject, seed: int) -> Said:
        """Ask with a seed and a limit, as far as the endpoint knows these fields, and by the names that it has for them."""
        while True:
            fields = self._fields(seed)
            try:
                return await self._tried(body | fields)
            except RefusedRequestError as error:
                if fields == self._fields(seed) and not self._learns(error.what):
                    raise

    def _fields(self, seed: int) -> JsonObject:
        return {self._limit: self.max_tokens} | ({"seed": seed} if self._seeded else {})

    def _learns(self, refusal: str) -> bool:
        """Learn from a refusal which field the endpoint does not have; False if that was not the reason."""
        if self._limit == _LIMIT and _NEWER_LIMIT in refusal:
            self._limit = _NEWER_LIMIT
        elif self._seeded and _SEED.search(refusal):
            self._seeded = False
        else:
            return False
        return True

    async def _tried(self, body: JsonObject) -> Said:
        failed, wait = "", 0.0
        for number in range(TRIES):
            await anyio.sleep(wait)
            self._breaker.require()
            wait = random.uniform(0.5, 1) * min(0.5 * 2**number, LONGEST_WAIT)
            answer = await self._paid(body)
            if isinstance(answer, Said):
                return answer
            failed, wait = answer.why, answer.wait or wait
        raise BusyError(f"{failed}, {TRIES} times", self.url, "start it, or try again later: what was answered is kept")

    async def _paid(self, body: JsonObject) -> Said | _Failure:
        """Make one try, and pay for it."""
        data = json.dumps(body, ensure_ascii=False).encode(errors="replace")
        held = await self._hold(data)
        began = time.monotonic()
        try:
            outcome = await self._once(data)
        except BaseException:  # it was sent, and nobody reads what it says: it is paid in full
            self._pay(held, held, began, failed=True)
            raise
        if isinstance(outcome, Said):
            self._breaker.answered()
            self._pay(held, outcome.tokens, began, estimated=outcome.estimated)
            if not outcome.estimated:
                self._meter.counted(len(data), outcome.tokens)
            return outcome
        self._pay(held, outcome.cost(data, held), began, failed=True, estimated=True)
        if outcome.error:
            raise outcome.error
        self._breaker.failed(began, outcome.why, busy=outcome.busy)
        return outcome

    async def _once(self, data: bytes) -> Said | _Failure:
        try:
            with anyio.fail_after(self.timeout):
                status, headers, raw = await self._posted(data)
        except httpx.DecodingError as error:  # it is not compressed as it says
            return unreadable(str(error), data)
        except (httpx.TransportError, TimeoutError) as error:
            sent = not isinstance(error, _NOT_SENT)
            return _Failure(f"it does not answer: {type(error).__name__}", lost=sent, sent=sent)
        if 200 <= status < 300:
            return read_said(raw, data)
        what = f"it answers {status}: {' '.join(raw[:300].decode(errors='replace').split())}"
        is_form = status >= 500 and self._formatted is None and bool(_FORM.search(what))
        if status in _BUSY or (status >= 500 and status not in _THIS_ONE and not is_form):
            return _Failure(f"it answers {status}", busy=status in _BUSY, wait=asked_to_wait(headers) or 0.0)
        is_this_one = is_form or status in _THIS_ONE or (status == _FLAGGED and self._breaker.was_heard)
        kind = RefusedRequestError if is_this_one else ConfigError
        if status in _ELSEWHERE:
            what, fix = f"it answers {status}, and sends whoever asks elsewhere", f"name the URL at {headers.get('location', '')!r}"
        else:
            fix = f"check the URL, which ends with /v1, the model's name, and the key in {_KEY_NAME}"
        return _Failure(what, error=kind(what, self.url, fix))

    async def _posted(self, data: bytes) -> tuple[int, httpx.Headers, bytes]:
        headers, read = {"content-type": "application/json"}, bytearray()
        async with self._client.stream("POST", f"{self.url}/chat/completions", content=data, headers=headers) as answer:
            async for part in answer.aiter_bytes():
                read += part
                if len(read) > _LARGEST:
                    break
            return answer.status_code, answer.headers, bytes(read)

    async def _hold(self, data: bytes) -> Tokens:
        """Pay the most that a request may cost. Where the budget does not allow it, wait for what others get back.

        Raises:
            BusyError: nothing is under way, and the budget does not suffice.
        """
        while not self.ledger.hold(self.judge, most := self._meter.most(len(data)), self.budget):
            if not self._under_way:
                raise spent_error(self.ledger, self.judge, most, self.budget)
            await self._settled.wait()
        self._under_way += 1
        return most

    def _pay(self, held: Tokens, cost: Tokens, began: float, *, failed: bool = False, estimated: bool = False) -> None:
        seconds = time.monotonic() - began
        self.ledger.settle(self.judge, held, cost, self.budget, seconds, failed=failed, estimated=estimated)
        self._under_way -= 1
        self._settled.set()
        self._settled = anyio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()


@dataclass(frozen=True)
class _Failure:
    """A try without an answer. `lost`: it was sent, and the endpoint may have written a whole reply; `sent`: it arrived."""

    why: str
    busy: bool = False
    lost: bool = False
    sent: bool = True
    wait: float = 0.0
    error: ConfigError | None = None

    def cost(self, data: bytes, held: Tokens) -> Tokens:
        if self.lost:
            return held
        return Tokens(min(estimated(data.decode(errors="replace")), held.prompt) if self.sent else 0, 0)


async def ask_each(values: Sequence[T], ask: Callable[[T], Awaitable[None]], at_once: int) -> None:
    """Await `ask` of each value, `at_once` at a time. The first error ends those that have not begun, and cancels the others."""
    waiting, errors = iter(values), list[Exception]()

    async def work() -> None:
        for value in waiting:
            try:
                await ask(value)
            except Exception as error:
                errors.append(error)
                workers.cancel_scope.cancel()
                return

    async with anyio.create_task_group() as workers:
        for _ in range(min(at_once, len(values))):
            workers.start_soon(work)
    if errors:
        raise errors[0]


def spent_error(ledger: Ledger, judge: str, most: Tokens, budget: Budget) -> BusyError:
    tokens, money = ledger.total()
    limit = f"{tokens} of {budget.tokens} tokens" if budget.tokens is not None else f"{tokens} tokens"
    limit += f", {money:.4g} of {budget.money:.4g} of money" if budget.money is not None else ""
    what = f"the judges' budget is spent: {limit} in this night, and one question may take {most.total} more"
    return BusyError(what, judge, "raise budget_tokens or budget: what was answered is kept, and is not asked again")


def _response_format(form: JsonObject) -> JsonObject:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": form}}
