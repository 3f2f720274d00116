"""A vLLM server as an engine: token ids in, sampled ids and their log-probs out, by `POST /inference/v1/generate` (vLLM 0.32).

Its log-probs are taken as those at the sampling temperature (`--logprobs-mode processed_logprobs`), which only a comparison with
the model itself can prove: see `clawpipe.play.rollouts.generate.require_engine`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import httpx

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.engine import KEYS
from clawpipe.errors import BusyError, ClawpipeError, ConfigError, DataError
from clawpipe.model.engines.base import Completion, Sampling
from clawpipe.model.engines.lora_servers import SOON, Card, Facts, LoraServers, described
from clawpipe.model.engines.servers import Where, server_of

_GENERATE = "/inference/v1/generate"
_LEAST = -9998.0  # vLLM writes -9999 where a log-prob is not finite
_NO_SEED = -1  # of vLLM: draw one


class VllmEngine(LoraServers):
    """One policy on vLLM servers."""

    name, key, title = "vllm", KEYS["vllm"], "vLLM"
    load, unload = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
    to_load = "start it with --enable-lora --max-lora-rank R, and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment"

    def _turn(self, ids: Sequence[int], seed: int, sampling: Sampling, where: Where) -> Completion:
        body = {"model": self._model, "token_ids": list(ids), "sampling_params": _params(sampling, seed)}
        answer = self._servers.post(_GENERATE, body, allowed=(403, 404), **where._asdict())
        if answer.status_code == 404 and self._adapter and self._name in answer.text:
            raise self._lost(answer)
        if not answer.is_success:
            raise ConfigError(described(answer), str(answer.url), "use vLLM 0.32 or later, started with --enable-scale-out")
        turn, weights = _completion(answer, sampling, self.context - len(ids))
        self._require_weights(server_of(answer), weights)
        return turn

    def _facts(self, url: str, card: Card) -> Facts:
        version = "unknown"
        with suppress(ClawpipeError, ValueError, KeyError, TypeError):
            version = str(self._servers.get("/version", at=url, timeout=SOON).json()["version"])
        return Facts(card["max_model_len"], version)


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


def _completion(answer: httpx.Response, sampling: Sampling, room: int) -> tuple[Completion, str | None]:
    """Read an answer, and check that it is one turn with a log-prob per token; return it, and the version of the weights, if told.

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
        versions = [str(span["version"]) for span in choice.get("weight_versions") or []]
    except (ValueError, KeyError, TypeError) as error:
        raise _wrong(answer, "the answer is no turn with token ids and log-probs") from error
    if reason == "abort":
        raise BusyError("it ended a turn before its time", str(answer.url), "try again: what was answered is kept")
    if not same or not ids:
        raise _wrong(answer, f"the answer has {len(ids)} tokens and {len(content)} log-probs of other ones")
    if not all(math.isfinite(value) and value > _LEAST for value in logprobs):
        raise _wrong(answer, "a log-prob is not finite")
    if len(versions) > 1:
        raise _wrong(answer, "its weights changed while it sampled a turn")
    if not _ended(ids, reason, sampling, room):
        raise _wrong(
            answer, f"a turn of {len(ids)} tokens ended by {reason!r}, and not by the token or the limit that was asked for"
        )
    return Completion(ids, logprobs, reason), versions[0] if versions else None


def _ended(ids: Sequence[int], reason: str, sampling: Sampling, room: int) -> bool:
    """Whether a turn ended by its last token or by a limit, and says so. `room`: tokens that the context had left."""
    if ids[-1] in sampling.stop_ids:
        return reason == "stop" and len(ids) <= sampling.max_new_tokens
    return reason == "length" and len(ids) == min(sampling.max_new_tokens, room)


def _wrong(answer: Any, what: str) -> DataError:
    return DataError(what, str(answer.url), "ask a vLLM of version 0.32 or later, without plugins that change its answers")
