"""Fireworks: upload a version's files as a model of the account, and make a dedicated deployment of it, by its REST interface.

All names there follow from the version, so that another try finds what an earlier one has made. An uploaded adapter is merged into
its base by the service as the deployment starts. Replicas start with the first request, and end when nobody asks for a while.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.system import faults
from clawpipe.errors import BusyError, ConfigError, DataError
from clawpipe.model.engines.servers import Servers
from clawpipe.record.registry.deployed import Deployed
from clawpipe.record.registry.versions import ModelVersionInfo
from clawpipe.serve.deploying.plan import Call, Plan, Wanted

KEY, ACCOUNT = "FIREWORKS_API_KEY", "FIREWORKS_ACCOUNT_ID"
URL, PRICES = "https://api.fireworks.ai", "https://fireworks.ai/pricing"
_GPU = "NVIDIA_H100_80GB"
_RANKS = range(4, 65)  # of adapters that it serves
_UPLOAD_TRIES = 3
_GONE = ("DELETED", "DELETING")
_WEIGHTS = (".safetensors", ".json", ".txt", ".jinja", ".model")


class Fireworks:
    """Deployments of one version.

    Args:
        info: the version.
        files: directory of its adapter, or of its merged weights; needed for a plan.
    """

    def __init__(self, info: ModelVersionInfo, wanted: Wanted, files: Path | None = None) -> None:
        key = os.environ.get(KEY, "")
        if not key:
            raise ConfigError(f"{KEY} is not in the environment", "--to fireworks", f"set {KEY} to a key of your account")
        self._info, self._wanted, self._files = info, wanted, files
        self._url = (wanted.url or URL).rstrip("/")
        self._servers = Servers([self._url], key, KEY, timeout=120.0, tries=5, concurrency=1)
        self._name = _name_of(info, wanted)

    def __enter__(self) -> Fireworks:
        return self

    def __exit__(self, *_: object) -> None:
        self._servers.close()

    @cached_property
    def account(self) -> str:
        """The account: the one that is named, or the only one of the key."""
        named = self._wanted.project or os.environ.get(ACCOUNT)
        if named:
            return named.removeprefix("accounts/")
        found = [str(one["name"]).removeprefix("accounts/") for one in self._json("/v1/accounts?pageSize=2").get("accounts") or []]
        if len(found) == 1:
            return found[0]
        raise ConfigError(f"the key belongs to {len(found)} accounts: {', '.join(found)}", "--project", "name one of them")

    def plan(self) -> Plan:
        model, deployment = f"accounts/{self.account}/models/{self._name}", f"accounts/{self.account}/deployments/{self._name}"
        self._require_no_other_gpu(deployment)
        return Plan(
            target="fireworks",
            version=f"{self._info.name}@{self._info.version}",
            policy_version=self._info.policy.policy_version,
            wanted=self._wanted,
            where=f"{self._url} accounts/{self.account}",
            calls=self._calls(),
            price=self._price(),
            model=f"{model}#{deployment}",
            endpoint=f"{self._url}/inference/v1",
            deployment=deployment,
        )

    def deploy(self, plan: Plan) -> None:
        make_model, address, check, make_deployment = plan.calls
        model = self._found(f"{_path(make_model)}/{self._name}")
        if model is None:
            model = self._made(make_model)
        if model.get("state") != "READY":
            self._upload(address)
            self._json(check.path)
        found = self._found(f"{_path(make_deployment)}/{self._name}")
        if found is None or found.get("state") in _GONE:
            self._made(make_deployment)

    def state(self, record: Deployed) -> str:
        found = self._found(f"/v1/{record.deployment}")
        return str(found.get("state", "unknown")) if found else "gone"

    def end(self, record: Deployed) -> None:
        self._servers.delete(f"/v1/{record.deployment}?ignoreChecks=true", at=self._url, allowed=(404,))

    def _require_no_other_gpu(self, deployment: str) -> None:
        """Raise if it is deployed there on GPUs of another type than is asked for: that deployment would be found, and kept."""
        found = self._found(f"/v1/{deployment}") if self._wanted.gpu else None
        there = found.get("acceleratorType") if found and found.get("state") not in _GONE else None
        if there not in (None, self._wanted.gpu):
            end = f"end that first: clawpipe undeploy {self._info.name}@{self._info.version} --from fireworks"
            raise ConfigError(f"it is in service there already, on {there}", "--gpu", end)

    def _calls(self) -> tuple[Call, ...]:
        models, deployments = (f"/v1/accounts/{self.account}/{kind}" for kind in ("models", "deployments"))
        sizes = {file.name: str(file.stat().st_size) for file in self._uploads()}
        place = f"{models}/{self._name}"
        return (
            Call(method="POST", path=models, note="make the model", body={"modelId": self._name, "model": self._model()}),
            Call(
                method="POST",
                path=f"{place}:getUploadEndpoint",
                note="upload its files to the addresses of the answer",
                body={"filenameToSize": sizes},
            ),
            Call(method="GET", path=f"{place}:validateUpload", note="let the service check them"),
            Call(
                method="POST",
                path=f"{deployments}?deploymentId={self._name}",
                note="deploy it: from here on replicas cost money while they run",
                body=self._deployment(),
            ),
        )

    def _model(self) -> JsonObject:
        about = {"displayName": self._name, "description": f"clawpipe policy {self._info.policy.policy_version}"}
        if self._wanted.method == "merged":
            return about | {"kind": "HF_BASE_MODEL", "baseModelDetails": {"checkpointFormat": "HUGGINGFACE"}}
        return about | {"kind": "HF_PEFT_ADDON", "peftDetails": self._adapter()}

    def _adapter(self) -> JsonObject:
        config = json.loads((self._directory / "adapter_config.json").read_bytes())
        if not self._wanted.base:
            fix = "e.g. --base accounts/fireworks/models/qwen3-8b: the model that the adapter was trained on"
            raise ConfigError("an adapter needs the name of its base at the service", "--base", fix)
        if config["r"] not in _RANKS:
            fix = "deploy it with --method merged, or train with another train.lora.rank"
            raise ConfigError(f"the service takes adapters of rank 4 to 64, and this one has {config['r']}", "--method", fix)
        modules = config["target_modules"]
        return {
            "baseModel": self._wanted.base,
            "r": config["r"],
            "targetModules": sorted(modules) if isinstance(modules, list) else [modules],
        }

    def _deployment(self) -> JsonObject:
        body: JsonObject = {
            "baseModel": f"accounts/{self.account}/models/{self._name}",
            "displayName": self._name,
            "description": f"clawpipe policy {self._info.policy.policy_version}",
            "minReplicaCount": 0,
            "maxReplicaCount": 1,
        }
        if self._wanted.gpus is None and self._wanted.gpu is None:
            return body | {"deploymentShape": "default"}
        return body | {"acceleratorType": self._wanted.gpu or _GPU, "acceleratorCount": self._wanted.gpus or 1}

    def _price(self) -> str:
        gpus = self._wanted.gpus or (1 if self._wanted.gpu else None)
        of = f"{gpus} {self._wanted.gpu or _GPU}" if gpus else "the service's choice of GPUs"
        if gpus and self._wanted.gpu_hour:
            total = gpus * self._wanted.gpu_hour
            return f"${total:.2f} an hour while a replica runs: {of} at ${self._wanted.gpu_hour:.2f}, the figure of --gpu-hour"
        return f"unknown: the service's interface tells no prices; it bills {of} by the second while a replica runs, see {PRICES}"

    def _uploads(self) -> list[Path]:
        return [file for file in sorted(self._directory.iterdir()) if file.suffix in _WEIGHTS and file.name != "manifest.json"]

    @property
    def _directory(self) -> Path:
        assert self._files
        return self._files

    def _upload(self, call: Call) -> None:
        urls = self._post(call).get("filenameToSignedUrls") or {}
        for file in self._uploads():
            if file.name not in urls:
                raise DataError(f"the service gives no address for {file.name}", self._url, "try again")
            _put(file, urls[file.name])
            faults.kill_point("fireworks.uploaded", file.name)

    def _made(self, call: Call) -> JsonObject:
        """Make something by its name; if an answer was lost, it is there already."""
        faults.kill_point("fireworks.asked", call.note)
        answer = self._servers.post(call.path, call.body, allowed=(409,))
        faults.kill_point("fireworks.answered", call.note)
        if answer.status_code == 409:
            return self._found(f"{_path(call)}/{self._name}") or {}
        return _read(answer)

    def _found(self, path: str) -> JsonObject | None:
        answer = self._servers.get(path, at=self._url, allowed=(404,))
        return None if answer.status_code == 404 else _read(answer)

    def _post(self, call: Call) -> JsonObject:
        return _read(self._servers.post(call.path, call.body))

    def _json(self, path: str) -> JsonObject:
        return _read(self._servers.get(path, at=self._url))


def _name_of(info: ModelVersionInfo, wanted: Wanted) -> str:
    """Return the version's name there: the service takes small letters, digits and dashes, and 63 of them."""
    name = re.sub(r"[^a-z0-9]+", "-", info.name.lower()).strip("-")[:30]
    return f"clawpipe-{name}-{info.version}-{wanted.method}-{info.policy.policy_version[:8]}"


def _path(call: Call) -> str:
    return call.path.partition("?")[0]


def _read(answer: httpx.Response) -> JsonObject:
    try:
        found: Any = answer.json()
    except ValueError:
        found = None
    if not isinstance(found, Mapping):
        raise DataError("the service's answer is not of its interface", str(answer.url.copy_with(query=None)), "try again later")
    return dict(found)


def _put(file: Path, url: str) -> None:
    """Upload a file to a signed address, which goes into no message."""
    failed = ""
    for _ in range(_UPLOAD_TRIES):
        try:
            with file.open("rb") as data, _sending(url, data, file.stat().st_size) as answer:
                if answer.is_success:
                    return
                failed = f"it answers {answer.status_code}"
        except httpx.TransportError as error:
            failed = type(error).__name__
    raise BusyError(f"{file.name} could not be uploaded: {failed}", "the address that the service gave", "run again: it goes on")


def _sending(url: str, data: Any, size: int) -> AbstractContextManager[httpx.Response]:
    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
    return httpx.stream("PUT", url, content=data, headers=headers, timeout=httpx.Timeout(600.0, connect=30.0))
