"""A service that speaks Tinker's API as an engine: token ids in, sampled ids and their log-probs out, by its sampling clients.

The base is sampled by its name there, an adapter by the path under which the service keeps it for sampling, which its training has
noted. The service numbers requests, so that one that is sent twice is sampled, and paid for, once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.config.quantization import Quantization
from clawpipe.core.system.quick_imports import quick_imports
from clawpipe.errors import ConfigError, DataError, NotFoundError
from clawpipe.model.engines.base import Completion, Sampling
from clawpipe.model.engines.histories import Histories
from clawpipe.model.engines.turns import Turns, turn_key
from clawpipe.model.policy.layout import context_at

if TYPE_CHECKING:
    from tinker import ModelInput, SamplingParams

_FIX = "ask a service that speaks Tinker's API in the version of clawpipe's extra `tinker`"
_SCHEME = "tinker://"  # of the paths under which such services keep weights
_LARGEST_SEED = 2**63 - 1


class TinkerEngine:
    """One policy at the service.

    Args:
        server: where it is, and the base's name there.
        version: the policy's version.
        remote: where the service keeps the adapter for sampling.

    Raises:
        NotFoundError: the service was never given the adapter.
        ConfigError, DataError, BusyError: see clawpipe.model.hosted.tinker_errors; or it samples another base.
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
        remote: str | None,
    ) -> None:
        _require_given(adapter, remote, version)
        with quick_imports():
            from clawpipe.model.hosted.tinker import Service
        self._url, self._model = (server.url or (None,))[0], str(server.model)
        self._service = Service(self._url, self._model, server.timeout)
        self._at_once, self._version, self._turns = server.concurrency, version, None
        self.context = context_at(base)
        self.described: JsonObject = {"name": "tinker", "model": self._model, "dtype": server.computes_in(dtype)}
        try:
            self._client = self._open(remote)
        except BaseException:
            self._service.close("errored")
            raise

    def begin(self, prompts: Sequence[Sequence[int]]) -> Histories:
        """Start a batch of conversations; prompts are token ids, of different lengths, each of at least one token."""
        return Histories(self.sample, prompts)

    def sample(self, asked: Sequence[tuple[Sequence[int], int]], sampling: Sampling) -> list[Completion]:
        """Sample a turn after each history, with its seed.

        Raises:
            DataError: an answer is not what this API says.
        """
        turns = [self._known(ids, seed, sampling) for ids, seed in asked]
        missing = [place for place, turn in enumerate(turns) if turn is None]
        for first in range(0, len(missing), self._at_once):
            places = missing[first : first + self._at_once]
            for place, turn in zip(places, self._together([asked[place] for place in places], sampling), strict=True):
                turns[place] = turn
        return [turn for turn in turns if turn is not None]

    def score(self, ids: Sequence[int], start: int, temperature: float = 1.0) -> list[float]:
        """Return the natural log-probs of `ids[start:]` (start >= 1), each given the tokens before it; at temperature 1 alone.

        Raises:
            ConfigError: another temperature is asked for.
            DataError: the answer has another length, or a log-prob is not finite.
        """
        if temperature != 1:
            raise ConfigError("the service has log-probs at temperature 1 alone", "rollouts.temperature", "set it to 1")
        found = self._service.ask("compute_logprobs", self._client.compute_logprobs(_input(ids)))
        values = [_finite(value, self._service.where) for value in found[start - len(ids) :]]  # some services leave out the first
        if len(values) != len(ids) - start:
            raise _wrong(self._service.where, f"it has {len(values)} log-probs for {len(ids) - start} tokens")
        return values

    def remember(self, file: Path | None) -> None:
        """Keep turns in this file from now on, and take those that it holds; None: keep none."""
        self._turns = Turns(file) if file else None

    def close(self) -> None:
        """End the session at the service. Safe to call twice."""
        self._service.close()

    def _open(self, remote: str | None) -> Any:
        from clawpipe.model.hosted.tinker import is_same_model
        from clawpipe.model.hosted.tinker_errors import told_as_ours

        with told_as_ours(self._service.where):
            base = None if remote else self._model
            opening = self._service.client.create_sampling_client(model_path=remote, base_model=base)
            client = self._service.ask("create_sampling_client", opening)
        if not is_same_model(client.get_base_model(), self._model):
            what = f"the service samples from {client.get_base_model()}, not from {self._model}"
            raise DataError(what, self._service.where, "set rollouts.engine.model to the model that the policy was trained on")
        return client

    def _known(self, ids: Sequence[int], seed: int, sampling: Sampling) -> Completion | None:
        return self._turns.get(turn_key(self._version, ids, seed, sampling)) if self._turns else None

    def _together(self, asked: Sequence[tuple[Sequence[int], int]], sampling: Sampling) -> list[Completion]:
        """Ask for all turns, then wait for each, and keep it before the next."""
        from clawpipe.model.hosted.tinker_errors import told_as_ours

        with told_as_ours(self._service.where):
            futures = [self._client.sample(_input(ids), 1, _params(sampling, seed)) for ids, seed in asked]
        turns = []
        for (ids, seed), future in zip(asked, futures, strict=True):
            turn = _completion(self._service.ask("sample", future), sampling, self.context - len(ids), self._service.where)
            if self._turns:
                self._turns.add(turn_key(self._version, ids, seed, sampling), turn)
            turns.append(turn)
        return turns


def _require_given(adapter: Path | None, remote: str | None, version: str) -> None:
    if adapter and not (remote and remote.startswith(_SCHEME)):
        raise NotFoundError(
            f"the service was never given the adapter of policy {version}: it was not trained there",
            "rollouts.engine",
            "set train.backend to tinker with train.start_from=base, or sample with another engine",
        )
    if find_spec("tinker") is None:
        raise ConfigError("the library of the service is not installed", "rollouts.engine", "pip install 'clawpipe[tinker]'")


def _input(ids: Sequence[int]) -> ModelInput:
    from tinker import ModelInput

    return ModelInput.from_ints(list(ids))


def _params(sampling: Sampling, seed: int) -> SamplingParams:
    """Return the service's parameters; only `stop_ids` end a turn."""
    from tinker import SamplingParams

    return SamplingParams(
        max_tokens=sampling.max_new_tokens,
        seed=seed & _LARGEST_SEED,
        stop=list(sampling.stop_ids),
        temperature=sampling.temperature,
        top_k=-1,
        top_p=sampling.top_p,
    )


def _completion(answer: Any, sampling: Sampling, room: int, where: str) -> Completion:
    """Read an answer, and check that it is one turn with a log-prob per token.

    Args:
        room: tokens that the context had left.

    Raises:
        DataError: it is not.
    """
    if len(answer.sequences) != 1:
        raise _wrong(where, f"it holds {len(answer.sequences)} turns in place of one")
    [one] = answer.sequences
    ids, logprobs = [int(token) for token in one.tokens], one.logprobs or []
    if not ids or len(ids) != len(logprobs):
        raise _wrong(where, f"it has {len(ids)} tokens and {len(logprobs)} log-probs")
    if not _ended(ids, one.stop_reason, sampling, room):
        ended = "and not by the token or the limit that was asked for"
        raise _wrong(where, f"a turn of {len(ids)} tokens ended by {one.stop_reason!r}, {ended}")
    return Completion(ids, [min(_finite(value, where), 0.0) for value in logprobs], one.stop_reason)


def _ended(ids: Sequence[int], reason: str, sampling: Sampling, room: int) -> bool:
    """Whether a turn ended by its last token or by a limit, and says so."""
    if ids[-1] in sampling.stop_ids:
        return reason == "stop" and len(ids) <= sampling.max_new_tokens
    return reason == "length" and len(ids) == min(sampling.max_new_tokens, room)


def _finite(value: float | None, where: str) -> float:
    if value is None or not math.isfinite(value):
        raise _wrong(where, "a log-prob is missing, or not finite")
    return float(value)


def _wrong(where: str, what: str) -> DataError:
    return DataError(f"the service's answer is no turn with log-probs: {what}", where, _FIX)
