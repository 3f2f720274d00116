"""Sessions of a training at Fireworks, through its library in a Python of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import quote

import torch
from torch import Tensor

from clawpipe.core.basics.words import without_secret
from clawpipe.core.store.digests import sha256_json
from clawpipe.core.system import faults, processes
from clawpipe.errors import BusyError, ClawpipeError, ConfigError, DataError, TrainingError
from clawpipe.learn.training.data.packing import inputs_of
from clawpipe.learn.training.data.samples import Sample
from clawpipe.learn.training.remote import fireworks_host
from clawpipe.learn.training.remote.adapter import CONFIG, WEIGHTS, convert_adapter
from clawpipe.learn.training.remote.session import StepLoss
from clawpipe.learn.training.request import TrainRequest
from clawpipe.model.engines.servers import Servers
from clawpipe.model.hosted.downloads import bytes_at
from clawpipe.model.hosted.statuses import error_of_status
from clawpipe.play.environments.interpreter import bootstrap

KEY, ROOT = "FIREWORKS_API_KEY", "https://api.fireworks.ai"
_EPSILON = 1e-8  # of AdamW, as the local trainer has it
_SECONDS = 600.0  # of a download
_PAGE = 200  # checkpoints of one answer
_NOT_FOUND = 404
_LENGTH = 300  # most characters of what the library said
_INSTALL = "make an environment of its own, pip install 'fireworks-ai[training-sdk]' there, and name its Python"


class Host(Protocol):
    """Answers requests with the service's library."""

    def ask(self, do: str, **given: Any) -> Any: ...


class ChildHost:
    """A host in another Python, as a context.

    Args:
        python: has `fireworks-ai[training-sdk]`.
        seconds: that one answer may take.
    """

    def __init__(self, python: str, where: str, seconds: float) -> None:
        command, variables = bootstrap(python, fireworks_host.__name__)
        self._python, self._where, self._seconds = python, where, seconds
        self._process = processes.spawn(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        processes.stop(self._process)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()

    def ask(self, do: str, **given: Any) -> Any:
        """Return the host's answer.

        Raises:
            ConfigError, DataError, TrainingError, BusyError: the library failed, or the service refused.
        """
        faults.kill_point("fireworks.asked", do)
        answer = json.loads(self._exchanged(json.dumps({"do": do, "given": given})))
        faults.kill_point("fireworks.answered", do)
        if "error" in answer:
            raise ours(answer["error"], self._where, self._python)
        return answer["ok"]

    def _exchanged(self, line: str) -> bytes:
        assert self._process.stdin
        assert self._process.stdout
        late = threading.Timer(self._seconds, self._process.kill)  # an answer that never comes ends as that of a dead host
        late.start()
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
            told = self._process.stdout.readline()
        except OSError:
            told = b""
        finally:
            late.cancel()
        if not told:
            raise BusyError(
                "the process with the service's library has ended, or did not answer", self._where, "run again: it goes on"
            )
        return told


class FireworksSession:
    """The weights of one policy; see clawpipe.learn.training.remote.session. Each loss is computed here, from log-probs of a
    forward pass there, which then gets the gradient as weights of the tokens."""

    def __init__(self, host: Host, url: str | None, model: str, request: TrainRequest, state: str | None) -> None:
        self._host, self._model, self._request = host, model, request
        self._root = (url or ROOT).partition("/training/v1")[0].rstrip("/")
        self._kept: dict[str, str] = {}
        self._state = state  # where the present weights are saved
        lora = request.config.lora
        asked = {"rank": lora.rank, "alpha": lora.alpha, "seed": request.seed, "state": state}
        self._name = host.ask("open", url=url, model=model, **asked)

    def logprobs(self, rows: Sequence[Sample]) -> list[Tensor]:
        found = self._host.ask("forward", rows=[_row(row, torch.zeros(len(row.trained))) for row in rows])
        if [len(values) for values in found] != [len(inputs_of(row)) for row in rows]:
            raise TrainingError("the service's log-probs are not one for each token", self._root)
        return [torch.tensor(values)[torch.from_numpy(row.trained - 1)] for row, values in zip(rows, found, strict=True)]

    def add_gradient(self, rows: Sequence[Sample], loss: StepLoss) -> Tensor:
        logprobs = torch.cat(self.logprobs(rows)).requires_grad_()
        [gradient] = torch.autograd.grad(loss.of(logprobs), logprobs)
        weights = (-gradient).split([len(row.trained) for row in rows])
        self._host.ask("backward", rows=[_row(row, each) for row, each in zip(rows, weights, strict=True)])
        return logprobs.detach()

    def step(self, rate: float) -> float | None:
        config = self._request.config
        adam = {
            "learning_rate": rate,
            "beta1": config.adam_beta1,
            "beta2": config.adam_beta2,
            "eps": _EPSILON,
            "weight_decay": config.weight_decay,
            "grad_clip_norm": config.max_grad_norm,
        }
        self._state = None
        return self._host.ask("step", adam=adam)

    def save(self, name: str) -> str:
        self._state = path = self._host.ask("save", name=name)
        return path

    def save_for_sampling(self, name: str) -> str:
        self._kept[name] = self._host.ask("keep", name=name)
        return f"fireworks://{self._kept[name]}"

    def export(self, name: str, directory: Path) -> None:
        downloaded = directory.with_name(f".{directory.name}.downloaded")
        self._download(self._promoted(name), downloaded)
        staging, request = directory.with_name(f".{directory.name}.partial"), self._request
        shutil.rmtree(staging, ignore_errors=True)
        convert_adapter(downloaded, staging, request.base, request.base_digest, request.config.lora)
        os.replace(staging, directory)
        shutil.rmtree(downloaded)

    def _promoted(self, name: str) -> str:
        """Return the account's model of the present weights. Where they are saved, its name follows from that: a later process
        finds the one that a killed one has made, and makes no second one."""
        if not self._name:
            raise BusyError("the library cannot tell its training session", self._root, "run again: it goes on from what was saved")
        models = f"{self._name.partition('/trainingSessions')[0]}/models"
        with self._servers() as servers:
            if self._state and self._is_there(servers, made := f"{models}/{self._named(name, self._state)}"):
                return made
            if name not in self._kept:  # by a process that was killed, whose session has ended
                self.save_for_sampling(name)
            model = f"{models}/{self._named(name, self._state or self._kept[name])}"
            self._promote(servers, self._checkpoint(servers, self._kept[name]), model)
        return model

    def _named(self, name: str, saved: str) -> str:
        return f"clawpipe-{sha256_json([self._request.identity(), name, saved])[:24]}"

    def _is_there(self, servers: Servers, model: str) -> bool:
        return servers.get(f"/v1/{model}", at=self._root, allowed=(_NOT_FOUND,)).status_code != _NOT_FOUND

    def _promote(self, servers: Servers, checkpoint: str, model: str) -> None:
        """Make a model of a checkpoint; if an answer was lost, it is there already."""
        faults.kill_point("fireworks.asked", "promote")
        servers.post(f"/v1/{checkpoint}:promote", {"output_model": model, "base_model": self._model}, allowed=(409,))
        faults.kill_point("fireworks.answered", "promote")

    def _checkpoint(self, servers: Servers, path: str) -> str:
        """Return the name by which the service's interface knows what was kept at `path`."""
        wanted, page = path.rpartition("/")[2], ""
        while True:
            told = servers.get(f"/v1/{self._name}/checkpoints?pageSize={_PAGE}{page}", at=self._root).json()
            names = [str(one["name"]) for one in told.get("trainingSessionCheckpoints") or []]
            if found := [one for one in names if one.rpartition("/")[2] == wanted]:
                return found[0]
            if not told.get("nextPageToken"):
                raise DataError(f"the training session has no checkpoint {wanted}", self._root, "run again: it is kept anew")
            page = f"&pageToken={quote(told['nextPageToken'], safe='')}"

    def _servers(self) -> Servers:
        return Servers([self._root], os.environ.get(KEY, ""), KEY, _SECONDS, concurrency=1)

    def _download(self, model: str, directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        with self._servers() as servers:
            urls = servers.get(f"/v1/{model}:getDownloadEndpoint", at=self._root).json().get("filenameToSignedUrls") or {}
        for name in (WEIGHTS, CONFIG):
            place = next((url for file, url in urls.items() if file.rpartition("/")[2] == name), None)
            if place is None:
                raise DataError(f"the exported weights have no {name}", self._root, "the service has to export adapters")
            (directory / name).write_bytes(bytes_at(place, _SECONDS))


def ours(error: dict[str, Any], where: str, python: str) -> ClawpipeError:
    """Return what went wrong at the host as one of clawpipe's errors."""
    said = f"{error['kind']}: {without_secret(error['text'], os.environ.get(KEY, ''))[:_LENGTH]}"
    if error["kind"] == "ImportError":
        return ConfigError(f"the service's library cannot be imported: {said}", python, _INSTALL)
    if error["status"]:
        return error_of_status(error["status"], said, where, KEY)
    if error["kind"] in ("APIConnectionError", "APITimeoutError", "TimeoutError", "ConnectionError"):
        return BusyError(f"the service does not answer: {said}", where, "run again: it goes on from what was saved")
    if error["kind"] == "RequestFailedError":
        return DataError(
            f"the service could not do it: {said}", where, "check that the model there is the one whose tokens the rows hold"
        )
    return TrainingError(f"the service's library failed: {said}", where)


def _row(row: Sample, weights: Tensor) -> dict[str, list[Any]]:
    """Return a row for the host: its tokens, the next one of each, and weights [N] at the trained ones, 0 elsewhere."""
    tokens = inputs_of(row)
    spread = torch.zeros(len(tokens))
    spread[torch.from_numpy(row.trained - 1)] = weights.float()
    targets = row.token_ids[1 : len(tokens) + 1]
    return {"tokens": [int(token) for token in tokens], "targets": [int(token) for token in targets], "weights": spread.tolist()}
