"""Sessions with a service that speaks Tinker's API. The library numbers requests, so that one that is sent twice counts once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import numpy as np
import tinker
import torch
from tinker import types
from torch import Tensor

from clawpipe import faults
from clawpipe.errors import DataError
from clawpipe.training.data.packing import inputs_of
from clawpipe.training.data.samples import Sample
from clawpipe.training.remote.adapter import CONFIG, WEIGHTS, convert_adapter
from clawpipe.training.remote.session import NamedLoss, OpenSession, StepLoss
from clawpipe.training.remote.tinker_errors import told_as_ours
from clawpipe.training.request import TrainRequest

_EPSILON = 1e-8  # of AdamW, as the local trainer has it; the library's own default is another
_TRIES = 5  # of a download


class Service:
    """The service at a URL, as a context: what was opened in it is closed at its end.

    Args:
        url: None: the one that the library knows.
        model: name of the base there.
        timeout: seconds that one request may take, with all its tries.
        keep_seconds: for how long the service keeps what is saved there.
    """

    def __init__(self, url: str | None, model: str, timeout: float, keep_seconds: int) -> None:
        os.environ["TINKER_TELEMETRY"] = "0"  # it would send what errors say
        self.url, self.model, self.timeout, self.keep_seconds = url, model, timeout, keep_seconds
        self.where = url or os.environ.get("TINKER_BASE_URL") or "tinker"
        self._client: tinker.ServiceClient | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._client is None:
            return
        with suppress(Exception):  # the session ends by itself, a little later
            self._client.close("errored" if error else "success").result(timeout=10)

    @property
    def client(self) -> tinker.ServiceClient:
        if self._client is None:
            self._client = tinker.ServiceClient(base_url=self.url)
        return self._client

    def opener(self, request: TrainRequest) -> OpenSession:
        """Return what opens sessions of this training."""
        return partial(TinkerSession, self, request)

    def ask(self, name: str, future: Any) -> Any:
        """Wait for the answer to a request.

        Raises:
            ClawpipeError: see `told_as_ours`.
        """
        faults.kill_point("tinker.asked", name)
        with told_as_ours(self.where):
            answer = future.result(timeout=self.timeout)
        faults.kill_point("tinker.answered", name)
        return answer


class TinkerSession:
    """The weights of one policy; see clawpipe.training.remote.session."""

    def __init__(self, service: Service, request: TrainRequest, state: str | None) -> None:
        """Load what was saved at `state`, or make a new adapter on the base.

        Raises:
            DataError: the weights are those of another base.
        """
        self._service, self._request = service, request
        with told_as_ours(service.where):
            self._client = service.ask("load", self._load(state) if state else self._create())
            info = self._client.get_info()
        found = info.model_data.model_name
        if found and not _is_same(found, service.model):
            what = f"the service trains {found}, not {service.model}"
            raise DataError(what, service.where, "set train.backend.model to the model of this night")

    def _create(self) -> Any:
        lora = self._request.config.lora
        return self._service.client.create_lora_training_client(
            self._service.model, rank=lora.rank, seed=self._request.seed, train_unembed=False
        )

    def _load(self, state: str) -> Any:
        return self._service.client.create_training_client_from_state_with_optimizer(state)

    def logprobs(self, rows: Sequence[Sample]) -> list[Tensor]:
        data = [_datum(row, {"weights": torch.zeros(len(row.trained))}) for row in rows]
        found = self._service.ask("forward", self._client.forward(data, "cross_entropy"))
        return _of_trained(rows, found.loss_fn_outputs)

    def add_gradient(self, rows: Sequence[Sample], loss: StepLoss) -> Tensor:
        if loss.named is None:
            return self._by_two_passes(rows, loss)
        data = _named_data(rows, loss.named)
        future = self._client.forward_backward(data, loss.named.name, dict(loss.named.config) or None)  # pyright: ignore[reportArgumentType]
        found = self._service.ask("forward_backward", future)
        return torch.cat(_of_trained(rows, found.loss_fn_outputs))

    def _by_two_passes(self, rows: Sequence[Sample], loss: StepLoss) -> Tensor:
        """Compute the loss here, from the log-probs of a forward pass, and send back the gradient by them."""
        seen: list[Tensor] = []

        def of_outputs(data: Any, outputs: list[Tensor]) -> tuple[Tensor, dict[str, float]]:
            logprobs = torch.cat([output[row.trained - 1] for row, output in zip(rows, outputs, strict=True)])
            seen.append(logprobs.detach())
            return loss.of(logprobs), {}

        data = [_datum(row, {"weights": torch.zeros(len(row.trained))}) for row in rows]
        self._service.ask("forward_backward_custom", self._client.forward_backward_custom(data, of_outputs))
        return seen[0]

    def step(self, rate: float) -> float | None:
        config = self._request.config
        adam = types.AdamParams(
            learning_rate=rate,
            beta1=config.adam_beta1,
            beta2=config.adam_beta2,
            eps=_EPSILON,
            weight_decay=config.weight_decay,
            grad_clip_norm=config.max_grad_norm,
        )
        answer = self._service.ask("optim_step", self._client.optim_step(adam))
        norms = [value for name, value in (answer.metrics or {}).items() if name.partition(":")[0].endswith("grad_norm")]
        return norms[0] if norms else None

    def save(self, name: str) -> str:
        future = self._client.save_state(name, ttl_seconds=self._service.keep_seconds)
        return self._service.ask("save_state", future).path

    def export(self, name: str, directory: Path) -> None:
        future = self._client.save_weights_external(name, ttl_seconds=self._service.keep_seconds)
        path = self._service.ask("save_weights_external", future).path
        downloaded = directory.with_name(f".{directory.name}.downloaded")
        self._download(path, downloaded)
        staging = directory.with_name(f".{directory.name}.partial")
        shutil.rmtree(staging, ignore_errors=True)
        request = self._request
        convert_adapter(downloaded, staging, request.base, request.base_digest, request.config.lora)
        os.replace(staging, directory)
        shutil.rmtree(downloaded)

    def _download(self, path: str, directory: Path) -> None:
        """Download an adapter's two files; the addresses are signed, and go into no message."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        with told_as_ours(self._service.where):
            client = tinker.RestClient(base_url=self._service.url)
            urls = self._service.ask("urls", client.get_external_weights_urls(path)).urls
            for name in (WEIGHTS, CONFIG):
                if name not in urls:
                    raise DataError(
                        f"the exported weights have no {name}", self._service.where, "the service has to export adapters"
                    )
                (directory / name).write_bytes(_bytes_at(urls[name], self._service.timeout))


def _is_same(found: str, model: str) -> bool:
    """Whether two names are one model's, with or without its owner, or a variant of it."""
    one, other = (name.rpartition("/")[2].casefold() for name in (found, model))
    return one in other or other in one


def whole_rows(rows: Sequence[Sequence[int]]) -> list[Sample]:
    """Return token ids as rows all of whose tokens but the first are trained."""
    return [Sample("", np.asarray(row), np.arange(1, len(row)), 1.0, 1.0, {}) for row in rows]


def _bytes_at(url: str, timeout: float) -> bytes:
    """Return what is at an address, after a few tries."""
    with httpx.Client(timeout=timeout, follow_redirects=True) as client:
        for left in reversed(range(_TRIES)):
            try:
                return client.get(url).raise_for_status().content
            except httpx.HTTPError as error:
                if not left:
                    raise httpx.TransportError(f"a download ended with {type(error).__name__}") from None
    raise AssertionError


def _datum(row: Sample, inputs: dict[str, Tensor]) -> types.Datum:
    """Return a row for the service: its tokens, the next one of each, and values [N] at the trained ones, 0 elsewhere."""
    tokens = inputs_of(row)
    spread = {name: torch.zeros(len(tokens)) for name in inputs}
    for name, values in inputs.items():
        spread[name][torch.from_numpy(row.trained - 1)] = values.float()
    spread["target_tokens"] = torch.from_numpy(row.token_ids[1 : len(tokens) + 1].astype("int64"))
    converted = {name: types.TensorData.from_torch(values) for name, values in spread.items()}
    return types.Datum(types.ModelInput.from_ints(tokens), converted)


def _named_data(rows: Sequence[Sample], loss: NamedLoss) -> list[types.Datum]:
    counts = [len(row.trained) for row in rows]
    parts = {name: values.split(counts) for name, values in loss.inputs.items()}
    return [_datum(row, {name: split[index] for name, split in parts.items()}) for index, row in enumerate(rows)]


def _of_trained(rows: Sequence[Sample], outputs: Sequence[Any]) -> list[Tensor]:
    """Return the log-probs of each row's trained tokens."""
    return [output["logprobs"].to_torch()[torch.from_numpy(row.trained - 1)] for row, output in zip(rows, outputs, strict=True)]
