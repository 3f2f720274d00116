"""The swaps of benchmarks/serving.py: a server of tiny models on loopback, clients that never pause, one version after another."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import httpx
import torch
from transformers import AutoModelForCausalLM

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.record.registry.promotions import TrialAction
from clawpipe.serve.serving.access import listen
from clawpipe.serve.serving.follow import Follower
from clawpipe.serve.serving.found import Served
from clawpipe.serve.serving.live import Live, loader
from clawpipe.serve.serving.policy import ServedPolicy
from clawpipe.serve.serving.server import Server
from clawpipe.serve.serving.versions import Versions

MODELS, CLIENTS, TOKENS = 3, 6, 24
KEY = {"authorization": "Bearer sk-a-benchmark-key"}
CLOSE, APART = 1e-3, 1e-2  # nats: an answer's log-probs are this near to its version's, and this far from the others'


class Heard(NamedTuple):
    """What is kept of an answer."""

    status: int
    version: int
    prompt: list[int]
    ids: list[int]
    logprobs: list[float]


class Numbered:
    """A registry whose version is set by hand; version n is model n modulo 3."""

    def __init__(self, directories: list[Path]) -> None:
        self.number, self._directories = 1, directories

    def version(self) -> str:
        return str(self.number)

    def find(self, version: str) -> Served:
        base = str(self._directories[int(version) % MODELS])
        spec = PolicySpec(base=base, adapter=None, dtype="float32", tool_call_format="pythonic", policy_version="a" * 16)
        return Served("agent", version, "d" * 64, spec)

    def go_back(self, version: str, reason: str) -> None:
        raise AssertionError(f"version {version} went back: {reason}")

    def log_trial(self, action: TrialAction, version: str, beside: str, reason: str) -> None:
        raise AssertionError(f"no version is on trial here: {action} {version} {beside} {reason}")


class OnRequest(Follower[Live]):
    """Looks when `look_now` is called."""

    async def run(self) -> None:
        self.loop = asyncio.get_running_loop()
        await asyncio.Event().wait()

    def look_now(self) -> None:
        asyncio.run_coroutine_threadsafe(self.look(), self.loop).result(120)


def swaps(count: int) -> JsonObject:
    """Return how many requests failed or were mixed while `count` versions were put in service."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        directories = [_model(Path(folder) / str(seed), seed) for seed in range(MODELS)]
        registry = Numbered(directories)
        versions = Versions(Live(ServedPolicy(registry.find("1"), "cpu")))
        follower, listener = OnRequest(versions, registry, loader("cpu")), listen("127.0.0.1", 0)
        server = Server(versions, "sk-a-benchmark-key", follower=follower, log_level="error")
        running = threading.Thread(target=server.run, args=([listener],))
        running.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        httpx.get(f"{url}/healthz", timeout=60)
        begun = time.monotonic()
        heard = _under_load(url, registry, follower, count)
        seconds = time.monotonic() - begun
        server.should_exit = True
        running.join()
        engines = [EmbeddedEngine(directory, None, device="cpu") for directory in directories]
        mixed = sum(not _is_of_its_version(answer, engines) for answer in heard if answer.status == 200)
    failed = sum(answer.status != 200 for answer in heard)
    seen = len({answer.version for answer in heard})
    return {
        "swaps": count,
        "requests": len(heard),
        "failed": failed,
        "mixed": mixed,
        "versions_heard": seen,
        "seconds": round(seconds),
    }


def _model(directory: Path, seed: int) -> Path:
    """Write a tiny model of random weights."""
    tiny = resolve_base("random").path
    torch.manual_seed(seed)
    AutoModelForCausalLM.from_config(AutoModelForCausalLM.from_pretrained(tiny).config).save_pretrained(directory)
    load_tokenizer(tiny).save_pretrained(directory)
    return directory


def _under_load(url: str, registry: Numbered, follower: OnRequest, count: int) -> list[Heard]:
    over, numbers = threading.Event(), itertools.count()

    def client(_: int) -> list[Heard]:
        heard = []
        with httpx.Client(timeout=120, headers=KEY) as http:
            while not over.is_set():
                heard.append(_ask(http, url, next(numbers)))
        return heard

    with ThreadPoolExecutor(CLIENTS) as clients:
        asking = [clients.submit(client, number) for number in range(CLIENTS)]
        for number in range(2, count + 2):
            registry.number = number
            follower.look_now()
        over.set()
        return [answer for each in asking for answer in each.result()]


def _ask(http: httpx.Client, url: str, number: int) -> Heard:
    """Ask one thing; every second request is of one of seven sessions, which keep their version."""
    body = {"model": "agent", "messages": [{"role": "user", "content": f"Question {number}"}], "max_tokens": TOKENS}
    body |= {"temperature": 1, "seed": number, "logprobs": True, "return_token_ids": True}
    headers = {"x-session-id": f"s{number % 7}"} if number % 2 else {}
    answer = http.post(f"{url}/v1/chat/completions", json=body, headers=headers)
    version = int(answer.headers.get("x-clawpipe-model-version", 0))
    if answer.status_code != 200:
        return Heard(answer.status_code, version, [], [], [])
    [choice] = answer.json()["choices"]
    reported = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    return Heard(200, version, answer.json()["prompt_token_ids"], choice["token_ids"], reported)


def _is_of_its_version(answer: Heard, engines: list[EmbeddedEngine]) -> bool:
    far = []
    for engine in engines:
        scores = engine.score([*answer.prompt, *answer.ids], len(answer.prompt))
        far.append(max(abs(mine - reported) for mine, reported in zip(scores, answer.logprobs, strict=True)))
    own = far.pop(answer.version % MODELS)
    return own < CLOSE and min(far) > APART
