"""The backend `fireworks`: train at Fireworks, through its library in a Python of its own. Imports no heavy library."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from clawpipe.core.config.quantization import Quantization
from clawpipe.core.config.training import Train
from clawpipe.core.system.quick_imports import quick_imports
from clawpipe.errors import ConfigError
from clawpipe.learn.training.backends import Capabilities, OnStep, Refusal
from clawpipe.learn.training.remote.refusals import of_adapters, of_services
from clawpipe.learn.training.request import TrainRequest

KEY = "FIREWORKS_API_KEY"


class FireworksBackend:
    """Trains adapters in a serverless training session of the service.

    Args:
        url: of the service; None: the one that its library knows.
        model: name of the base there, e.g. accounts/fireworks/models/qwen3-8b.
        python: Python of an environment with `fireworks-ai[training-sdk]`, whose pydantic is older than clawpipe's.
        timeout: seconds that one request may take, with all its tries.
    """

    can = Capabilities(
        methods=frozenset({"sft", "grpo", "dpo", "kto", "opd", "combine"}), goes_on=True, snapshots=True, resumes=True
    )

    def __init__(self, url: str | None, model: str, python: str | None = None, timeout: float = 1800.0) -> None:
        if not timeout > 0:
            raise ConfigError("timeout is above 0", "train.backend.options")
        self._url, self._model, self._python, self._timeout = url, model, python, timeout

    def refusals(self, train: Train, temperature: float, quantization: Quantization) -> Iterator[Refusal]:
        """Yield the settings that have no counterpart there."""
        if not os.environ.get(KEY):
            yield Refusal(f"{KEY} is not in the environment", KEY)
        if not self._python:
            yield Refusal(
                "its library needs a Python of its own, with fireworks-ai[training-sdk]", "train.backend.options.python=PYTHON"
            )
        yield from of_services(train, temperature, quantization)
        yield from of_adapters(train.lora)

    def train(self, request: TrainRequest, work: Path, on_step: OnStep) -> None:
        """Train; see clawpipe.learn.training.remote.loop."""
        with quick_imports():
            from clawpipe.learn.training.remote.fireworks_session import ROOT, ChildHost, FireworksSession
            from clawpipe.learn.training.remote.loop import train_at

        with ChildHost(str(self._python), self._url or ROOT, self._timeout) as host:
            train_at(partial(FireworksSession, host, self._url, self._model, request), request, work, on_step)

    def logprobs(self, request: TrainRequest, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the service's own log-probs of rows, under its base."""
        with quick_imports():
            from clawpipe.learn.training.remote.fireworks_session import ROOT, ChildHost, FireworksSession
            from clawpipe.learn.training.remote.session import whole_rows

        with ChildHost(str(self._python), self._url or ROOT, self._timeout) as host:
            session = FireworksSession(host, self._url, self._model, request, None)
            return [row.tolist() for row in session.logprobs(whole_rows(rows))]
