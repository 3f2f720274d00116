"""A vLLM server as an engine: token ids in, sampled ids and their log-probs out, by `POST /inference/v1/generate` (vLLM 0.32).

The server holds the base model; each policy's adapter is loaded under a name of its own, which holds the policy version, and is
never replaced by another one. Its log-probs are taken as those at the sampling temperature (`--logprobs-mode processed_logprobs`),
which only a comparison with the model itself can prove: see `clawpipe.rollouts.generate.require_engine`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from clawpipe.config.engine import KEYS, EngineSpec
from clawpipe.config.quantization import Quantization
from clawpipe.engines.base import Completion, Sampling
from clawpipe.engines.histories import Histories
from clawpipe.engines.servers import Servers, told
from clawpipe.errors import BusyError, ClawpipeError, ConfigError, DataError
from clawpipe.json_types import JsonObject

_GENERATE, _MODELS, _LOAD, _UNLOAD = "/inference/v1/generate", "/v1/models", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
_PREFIX = "clawpipe-"  # of adapters' names
_LEAST = -9998.0  # vLLM writes -9999 where a log-prob is not finite
_NO_SEED = -1  # of vLLM: draw one
_TO_LOAD = "start it with --enable-lora --max-lora-rank R, and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment"


class VllmEngine:
    """One policy on vLLM servers.

    Args:
        server: where they are, and how they are asked.
        version: the policy's version.

    Raises:
        ConfigError: a server does not serve the base model by this name, or takes no adapter.
        BusyError: a server does not answer.
    """

    def __init__(
        self,
        base: Path,
        adapter: Path | None,
        dtype: str,
        device: str,
        quantization: Quantization,
        *,
        server: EngineSpec,
        version: str,
    ) -> None:
        self._urls = [url.rstrip("/").removesuffix("/v1") for url in server.url]
        key = os.environ.get(KEYS["vllm"], "")
        self._servers = Servers(self._urls, key, KEYS["vllm"], server.timeout, concurrency=server.concurrency)
        self._adapter, self._name = adapter, f"{_PREFIX}{version}"
        try:
            found = [self._base_at(url, server.model) for url in self._urls]
            self._model = self._name if adapter else found[0]["id"]
            self._context = min(int(card["max_model_len"]) for card in found)
            self.described: JsonObject = {"name": "vllm", "version": self._version(), "dtype": server.dtype or dtype}
            if adapter:
                self._load()
        except BaseException:
            self._servers.close()
            raise

    @property
    def context(self) -> int:
        """The most tokens that a history may have."""
        return self._context

    def begin(self, prompts: Sequence[Sequence[int]]) -> Histories:
        """Start a batch of conversations; prompts are token ids, of different lengths, each of at least one token."""
        return Histories(self.map_generate, prompts)

    def generate(self, ids: Sequence[int], seed: int, sampling: Sampling) -> Completion:
        """Sample one turn after a history.

        Raises:
            DataError: the answer is not what this protocol says, or its weights changed while it was sampled.
            ConfigError, BusyError: see `Servers.post`.
        """
        body = {"model": self._model, "token_ids": list(ids), "sampling_params": _params(sampling, seed)}
        answer = self._servers.post(_GENERATE, body, allowed=(403, 404))
        if answer.status_code == 404 and self._adapter:  # somebody has unloaded it
            self._load()
            answer = self._servers.post(_GENERATE, body)
        if not answer.is_success:
            raise ConfigError(_described(answer), str(answer.url), "use vLLM 0.32 or later, started with --enable-scale-out")
        return _completion(answer, sampling, self._context - len(ids))

    def map_generate(self, asked: Sequence[tuple[Sequence[int], int]], sampling: Sampling) -> list[Completion]:
        """Sample a turn after each history, with its seed."""
        return self._servers.map(lambda pair: self.generate(*pair, sampling), asked)

    def close(self) -> None:
        """Unload the policy's adapter, where the servers are there. Safe to call twice."""
        for url in self._urls if self._adapter and not self._servers.closed else ():
            with suppress(ClawpipeError):
                self._servers.post(_UNLOAD, {"lora_name": self._name}, at=url, allowed=(400, 404), tries=1)
        self._servers.close()

    def _base_at(self, url: str, name: str | None) -> JsonObject:
        """Return the entry of the base model at a server."""
        cards = self._cards(url)
        bases = [card for card in cards if not card.get("parent") and (name is None or card["id"] == name)]
        if len(bases) == 1 and bases[0].get("max_model_len"):
            return bases[0]
        served = ", ".join(card["id"] for card in cards if not card.get("parent")) or "none"
        raise ConfigError(
            f"it serves no one base model {name or ''}".rstrip(), url, f"set rollouts.engine.model; it serves {served}"
        )

    def _cards(self, url: str) -> list[JsonObject]:
        answer = self._servers.get(_MODELS, at=url)
        try:
            return [card for card in answer.json()["data"] if card["id"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"no vLLM server: {told(answer, 200)!r}", url, "name the URL of a vLLM server, without a path"
            ) from error

    def _version(self) -> str:
        """Return vLLM's version, as the first server says it."""
        with suppress(ClawpipeError, ValueError, KeyError, TypeError):
            return str(self._servers.get("/version", at=self._urls[0]).json()["version"])
        return "unknown"

    def _load(self) -> None:
        """Load the adapter at every server that does not hold it. The server reads the directory, so it must see the same files."""
        body = {"lora_name": self._name, "lora_path": str(self._adapter)}
        for url in self._urls:
            answer = self._servers.post(_LOAD, body, at=url, allowed=(400, 403, 404, 405))
            if not answer.is_success and all(card["id"] != self._name for card in self._cards(url)):
                raise ConfigError(f"it does not load the adapter {self._adapter}: {_described(answer)}", url, _TO_LOAD)


def _params(sampling: Sampling, seed: int) -> JsonObject:
    """Return vLLM's sampling parameters; only `stop_ids` end a turn, whatever the model's generation_config.json says."""
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": 0,
        "min_p": 0.0,
        "max_tokens": sampling.max_new_tokens,
        "seed": seed if seed != _NO_SEED else 0,
        "stop_token_ids": list(sampling.stop_ids),
        "ignore_eos": True,
        "logprobs": 0,  # of the sampled token alone
        "detokenize": False,
    }


def _completion(answer: httpx.Response, sampling: Sampling, room: int) -> Completion:
    """Read an answer, and check that it is one turn with a log-prob per token.

    Args:
        room: tokens that the context had left.

    Raises:
        DataError: it is not.
    """
    try:
        [choice] = answer.json()["choices"]
        ids, reason = [int(token) for token in choice["token_ids"]], str(choice["finish_reason"])
        content = choice["logprobs"]["content"]
        logprobs = [min(float(entry["logprob"]), 0.0) for entry in content]
        same = [entry["token_id"] for entry in content] == ids
        versions = len(choice.get("weight_versions") or [])
    except (ValueError, KeyError, TypeError) as error:
        raise _wrong(answer, "the answer is no turn with token ids and log-probs") from error
    if reason == "abort":
        raise BusyError("it ended a turn before its time", str(answer.url), "try again: what was answered is kept")
    if not same or not ids:
        raise _wrong(answer, f"the answer has {len(ids)} tokens and {len(content)} log-probs of other ones")
    if not all(math.isfinite(value) and value > _LEAST for value in logprobs):
        raise _wrong(answer, "a log-prob is not finite")
    if versions > 1:
        raise _wrong(answer, "its weights changed while it sampled a turn")
    if not _ended(ids, reason, sampling, room):
        raise _wrong(
            answer, f"a turn of {len(ids)} tokens ended by {reason!r}, and not by the token or the limit that was asked for"
        )
    return Completion(ids, logprobs, reason)


def _ended(ids: Sequence[int], reason: str, sampling: Sampling, room: int) -> bool:
    """Whether a turn ended by its last token or by a limit, and says so. `room`: tokens that the context had left."""
    if ids[-1] in sampling.stop_ids:
        return reason == "stop" and len(ids) <= sampling.max_new_tokens
    return reason == "length" and len(ids) == min(sampling.max_new_tokens, room)


def _wrong(answer: Any, what: str) -> DataError:
    return DataError(what, str(answer.url), "ask a vLLM of version 0.32 or later, without plugins that change its answers")


def _described(answer: httpx.Response) -> str:
    return f"it answers {answer.status_code}: {told(answer)}"
