"""An engine in the test's own process that can be ended and started again at its address with other settings."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp.web as web

LOGITS = [8 - 0.25 * place for place in range(40)]


@dataclass
class Engine:
    """Samples one token of 40, whatever is asked.

    Attributes:
        kind: of its log-probs: tempered ones are those of what top_p leaves, as vLLM's.
        says: whether its answers name the kind.
        defaults: of settings that a request does not name.
        keeps_seed: whether draws with one seed are the same.
        created: what it says of its model; None: the clock.
        delay: seconds until it answers.
        asked: the requests for tokens.
        most: the most requests that it has answered at a time.
    """

    kind: str = "raw"
    says: bool = False
    defaults: dict[str, float] = field(default_factory=dict)
    keeps_seed: bool = True
    created: int | None = 1
    delay: float = 0.0
    asked: list[dict[str, Any]] = field(default_factory=list)
    most: int = 0
    running: int = 0

    async def chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(body)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(self.delay)
        self.running -= 1
        named = self.defaults | {name: value for name, value in body.items() if value is not None}
        left = _softmax([logit / named.get("temperature", 1.0) for logit in LOGITS], named.get("top_p", 1.0))
        told = left if self.kind == "tempered" else _softmax(LOGITS, 1.0)
        top = [{"token": str(place), "logprob": math.log(told[place]) if told[place] else -9999.0} for place in range(5)]
        draws = [self._draw(left, body, index) for index in range(body.get("n") or 1)]
        choices = [
            {
                **{"index": index, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"},
                **{"token_ids": [token], "logprobs": {"content": [{"logprob": -0.5, "top_logprobs": top}]}},
            }
            for index, token in enumerate(draws)
        ]
        answer = {"id": "r", "model": body["model"], "choices": choices, "prompt_token_ids": [1, 2]}
        return web.json_response(answer, headers={"x-clawpipe-logprobs": self.kind} if self.says else {})

    def _draw(self, shares: list[float], body: dict[str, Any], index: int) -> int:
        source = random.Random(body["seed"] + index) if "seed" in body and self.keeps_seed else random.Random()
        return source.choices(range(len(shares)), shares)[0]

    async def models(self, _: web.Request) -> web.Response:
        created = int(time.time()) if self.created is None else self.created
        return web.json_response({"data": [{"id": "m", "created": created}]})

    @asynccontextmanager
    async def at(self, port: int) -> AsyncIterator[None]:
        """Serve at a port of loopback; all connections end with the context."""
        app = web.Application()
        app.add_routes([web.post("/v1/chat/completions", self.chat), web.get("/v1/models", self.models)])
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
        try:
            yield
        finally:
            await runner.cleanup()


def _softmax(logits: list[float], top_p: float) -> list[float]:
    """Probabilities, of which the likeliest that make up `top_p` are left."""
    total = sum(map(math.exp, logits))
    shares, before = [math.exp(logit) / total for logit in logits], 0.0
    for place, share in enumerate(shares):
        shares[place] = share if before < top_p else 0.0
        before += share
    return [share / sum(shares) for share in shares]
