"""Sessions of a training with a service that speaks Tinker's API."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tinker
import torch
from tinker import types
from torch import Tensor

from clawpipe.errors import DataError
from clawpipe.learn.training.data.packing import inputs_of
from clawpipe.learn.training.data.samples import Sample
from clawpipe.learn.training.remote.adapter import CONFIG, WEIGHTS, convert_adapter
from clawpipe.learn.training.remote.session import NamedLoss, OpenSession, StepLoss
from clawpipe.learn.training.request import TrainRequest
from clawpipe.model.hosted.downloads import bytes_at
from clawpipe.model.hosted.tinker import Service, is_same_model
from clawpipe.model.hosted.tinker_errors import told_as_ours

_EPSILON = 1e-8  # of AdamW, as the local trainer has it; the library's own default is another


def opener(service: Service, request: TrainRequest, keep_seconds: int) -> OpenSession:
    """Return what opens sessions of this training.

    Args:
        keep_seconds: for how long the service keeps what is saved there.
    """
    return partial(TinkerSession, service, request, keep_seconds)


class TinkerSession:
    """The weights of one policy; see clawpipe.learn.training.remote.session."""

    def __init__(self, service: Service, request: TrainRequest, keep_seconds: int, state: str | None) -> None:
        """Load what was saved at `state`, or make a new adapter on the base.

        Raises:
            DataError: the weights are those of another base.
        """
        self._service, self._request, self._keep_seconds = service, request, keep_seconds
        with told_as_ours(service.where):
            self._client = service.ask("load", self._load(state) if state else self._create())
            info = self._client.get_info()
        found = info.model_data.model_name
        if found and not is_same_model(found, service.model):
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
        future = self._client.save_state(name, ttl_seconds=self._keep_seconds)
        return self._service.ask("save_state", future).path

    def save_for_sampling(self, name: str) -> str:
        future = self._client.save_weights_for_sampler(name, ttl_seconds=self._keep_seconds)
        return self._service.ask("save_weights_for_sampler", future).path

    def export(self, name: str, directory: Path) -> None:
        future = self._client.save_weights_external(name, ttl_seconds=self._keep_seconds)
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
                (directory / name).write_bytes(bytes_at(urls[name], self._service.timeout))


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
