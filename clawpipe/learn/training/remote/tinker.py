"""The backend `tinker`: train at a service that speaks Tinker's API, through its own library. Imports no heavy library."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from clawpipe.core.config.quantization import Quantization
from clawpipe.core.config.training import Train
from clawpipe.core.system.quick_imports import quick_imports
from clawpipe.errors import ConfigError
from clawpipe.learn.training.backends import Capabilities, OnStep, Refusal
from clawpipe.learn.training.remote.refusals import of_adapters, of_services
from clawpipe.learn.training.request import TrainRequest

KEY = "TINKER_API_KEY"
_ALPHA = 32  # the service scales an adapter by 32 / rank
_MONTH = 30 * 24 * 3600


class TinkerBackend:
    """Trains adapters at the service.

    Args:
        url: of the service; None: the one in TINKER_BASE_URL, else the library's.
        model: name of the base there.
        timeout: seconds that one request may take, with all its tries.
        keep_seconds: for how long the service keeps the saved steps and the exported adapter; at least an hour.
    """

    can = Capabilities(
        methods=frozenset({"sft", "grpo", "dpo", "kto", "opd", "combine"}), goes_on=True, snapshots=True, resumes=True
    )

    def __init__(self, url: str | None, model: str, timeout: float = 1800.0, keep_seconds: int = 7 * 24 * 3600) -> None:
        if find_spec("tinker") is None:
            raise ConfigError("the library of the service is not installed", "train.backend", "pip install 'clawpipe[tinker]'")
        if not timeout > 0 or not 3600 <= keep_seconds <= _MONTH:
            raise ConfigError("timeout is above 0, and keep_seconds from an hour to 30 days", "train.backend.options")
        self._url, self._model, self._timeout, self._keep_seconds = url, model, timeout, keep_seconds

    def refusals(self, train: Train, temperature: float, quantization: Quantization) -> Iterator[Refusal]:
        """Yield the settings that have no counterpart there."""
        if not os.environ.get(KEY):
            yield Refusal(f"{KEY} is not in the environment", f"{KEY}")
        yield from of_services(train, temperature, quantization)
        if train.lora.alpha != _ALPHA:
            yield Refusal(f"it scales adapters by {_ALPHA} / rank", f"train.lora.alpha={_ALPHA}")
        yield from of_adapters(train.lora)

    def train(self, request: TrainRequest, work: Path, on_step: OnStep) -> None:
        """Train; see clawpipe.learn.training.remote.loop."""
        with quick_imports():
            from clawpipe.learn.training.remote.loop import train_at
            from clawpipe.learn.training.remote.tinker_session import opener
            from clawpipe.model.hosted.tinker import Service

        with Service(self._url, self._model, self._timeout) as service:
            train_at(opener(service, request, self._keep_seconds), request, work, on_step)

    def logprobs(self, request: TrainRequest, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the service's own log-probs of rows, under its base."""
        with quick_imports():
            from clawpipe.learn.training.remote.session import whole_rows
            from clawpipe.learn.training.remote.tinker_session import opener
            from clawpipe.model.hosted.tinker import Service

        with Service(self._url, self._model, self._timeout) as service:
            return [row.tolist() for row in opener(service, request, self._keep_seconds)(None).logprobs(whole_rows(rows))]
