"""An SGLang server as an engine: token ids in, sampled ids and their log-probs out, by `POST /generate` (SGLang 0.5.23).

Its log-probs are those at the sampling temperature, over the whole vocabulary, unless `SGLANG_RETURN_ORIGINAL_LOGPROB` is set in
its environment: a comparison with the model itself tells (`clawpipe.play.rollouts.generate.require_engine`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.engine import KEYS
from clawpipe.errors import BusyError, ConfigError, DataError
from clawpipe.model.engines.base import Completion, Sampling
from clawpipe.model.engines.lora_servers import SOON, Card, Facts, LoraServers
from clawpipe.model.engines.servers import Where, server_of, told

_GENERATE, _SERVER, _MODEL = "/generate", "/server_info", "/model_info"
_LEAST = -1e4  # SGLang writes the least float32 where a log-prob is not finite
_FIX = "ask SGLang 0.5.23 or later, without plugins that change its answers"
_UNFIT = ("use_rslora", "use_dora", "rank_pattern", "alpha_pattern")  # of adapters, of which SGLang reads at most use_dora


class _Part(NamedTuple):
    """What one request sampled; its last token may be an end of the model's own that ends no turn here."""

    ids: list[int]
    logprobs: list[float]


class SglangEngine(LoraServers):
    """One policy on SGLang servers."""

    name, key, title = "sglang", KEYS["sglang"], "SGLang"
    load, unload = "/load_lora_adapter", "/unload_lora_adapter"
    to_load = "start it with --enable-lora --max-lora-rank R --lora-target-modules all"

    def _turn(self, ids: Sequence[int], seed: int, sampling: Sampling, where: Where) -> Completion:
        """Sample one turn after a history.

        SGLang ends a turn at the model's own end tokens as well, and its `ignore_eos` switches off those that are asked for, too.
        So the turn is gone on with after an end that nobody asked for.
        """
        most = min(sampling.max_new_tokens, self.context - len(ids))
        turn = self._sampled(ids, seed, sampling, most, where)
        while len(turn.ids) < most and turn.ids[-1] not in sampling.stop_ids:
            more = self._sampled([*ids, *turn.ids], seed, sampling, most - len(turn.ids), where)
            turn = _Part(turn.ids + more.ids, turn.logprobs + more.logprobs)
        return Completion(*turn, "stop" if turn.ids[-1] in sampling.stop_ids else "length")

    def _sampled(self, ids: Sequence[int], seed: int, sampling: Sampling, most: int, where: Where) -> _Part:
        body = {"input_ids": list(ids), "sampling_params": _params(sampling, seed, most), "return_logprob": True}
        body |= {"lora_path": self._name} if self._adapter else {}
        answer = self._servers.post(_GENERATE, body, allowed=(400,), **where._asdict())
        if answer.status_code == 400 and self._adapter and self._name in answer.text:
            raise self._lost(answer)
        part, weights = _part(self._servers.accepted(answer), most)
        for version in weights:
            self._require_weights(server_of(answer), version)
        return part

    def _load(self, url: str) -> None:
        """Load the adapter. Raises ConfigError if it is of a form that SGLang would compute wrongly, or not at all."""
        config = json.loads((Path(str(self._adapter)) / "adapter_config.json").read_text(encoding="utf-8"))
        if unfit := next((name for name in _UNFIT if config.get(name)), None):
            what = f"SGLang scales all of an adapter by alpha / rank, and this one has {unfit}"
            raise ConfigError(what, str(self._adapter), "train with train.lora.variant: lora, or sample with another engine")
        super()._load(url)

    def _facts(self, url: str, card: Card) -> Facts:
        """A history of `max_req_input_len` tokens is refused; its turn may end a few tokens beyond that, which are not used."""
        server, weights = self._told(url, _SERVER, "max_req_input_len"), self._told(url, _MODEL, "weight_version")
        longest = min(card["max_model_len"], server["max_req_input_len"])
        return Facts(longest, str(server.get("version", "unknown")), str(weights["weight_version"]))

    def _told(self, url: str, path: str, field: str) -> JsonObject:
        """Return what a server says at a path, which must hold the field."""
        answer = self._servers.get(path, at=url, allowed=(404,), timeout=SOON)
        said: Any = None
        with suppress(ValueError):  # no JSON
            said = answer.json()
        if not isinstance(said, dict) or said.get(field) is None:
            raise ConfigError(f"no server of SGLang: {path} says {told(answer, 200)!r}", url, _FIX)
        return said


def _params(sampling: Sampling, seed: int, most: int) -> JsonObject:
    """Return SGLang's sampling parameters: all that shape the draw, since a server may be started with others.

    Args:
        most: tokens that are sampled at most.
    """
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": -1,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "min_new_tokens": 0,
        "max_new_tokens": most,
        "stop_token_ids": list(sampling.stop_ids),
        "ignore_eos": False,
        "sampling_seed": seed,
        "skip_special_tokens": False,
    }


def _part(answer: httpx.Response, most: int) -> tuple[_Part, list[str]]:
    """Read an answer, and check that it is one turn, or its beginning, with a log-prob per token. Returns it, and the versions of
    the weights that sampled it.

    Args:
        most: tokens that were asked for.

    Raises:
        DataError: it is not.
    """
    try:
        said = answer.json()
        meta, ids = said["meta_info"], [int(token) for token in said["output_ids"]]
        reason, entries = str(meta["finish_reason"]["type"]), [(entry[0], entry[1]) for entry in meta["output_token_logprobs"]]
        spans = [str(span["version"]) for span in meta.get("weight_versions") or ()]
        weights = [*spans, str(meta["weight_version"])]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise _wrong(answer, "the answer is no turn with token ids and log-probs") from error
    if reason == "abort":
        raise BusyError("it ended a turn before its time", str(answer.url), "try again: what was answered is kept")
    if not ids or [token for _, token in entries] != ids:
        raise _wrong(answer, f"the answer has {len(ids)} tokens and {len(entries)} log-probs of other ones")
    if not all(isinstance(value, int | float) and math.isfinite(value) and value > _LEAST for value, _ in entries):
        raise _wrong(answer, "a log-prob is not finite")
    if len(ids) > most or (len(ids) < most and reason != "stop"):
        raise _wrong(answer, f"a turn of {len(ids)} tokens ended by {reason!r}, and not by a token or the limit that was asked for")
    return _Part(ids, [min(float(value), 0.0) for value, _ in entries]), weights


def _wrong(answer: httpx.Response, what: str) -> DataError:
    return DataError(what, str(answer.url), _FIX)
