"""Tinker: the service has the weights of what was trained there; they are kept from expiring, and served by their path's name."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from clawpipe.errors import ConfigError, DataError, NotFoundError
from clawpipe.record.registry.deployed import Deployed
from clawpipe.record.registry.names import version_name
from clawpipe.record.registry.versions import ModelVersionInfo
from clawpipe.serve.deploying.plan import Call, Plan, Wanted

KEY = "TINKER_API_KEY"
URL, PRICES = "https://tinker.thinkingmachines.dev/services/tinker-prod", "https://thinkingmachines.ai/tinker"
_SCHEME = "tinker://"  # of the paths of weights that were trained there
_WEEK = 7 * 24 * 3600  # for which an ended deployment's weights are kept
_SECONDS = 120.0  # of one request


class Tinker:
    """Deployments of one version."""

    def __init__(self, info: ModelVersionInfo, wanted: Wanted) -> None:
        _require_possible(info, wanted)
        from clawpipe.model.hosted.tinker import Service

        self._info, self._wanted = info, wanted
        self._url = (wanted.url or os.environ.get("TINKER_BASE_URL") or URL).rstrip("/")
        self._service = Service(self._url, "", _SECONDS)
        self._path = str(info.policy.remote)

    def __enter__(self) -> Tinker:
        return self

    def __exit__(self, *_: object) -> None:
        self._service.close()

    def plan(self) -> Plan:
        run, _, name = self._path.removeprefix("tinker://").partition("/")
        keep = Call(
            method="PUT",
            path=f"/api/v1/training_runs/{run}/checkpoints/{name}/ttl",
            note="keep the weights until the deployment is ended: storage and sampling cost money",
            body={"ttl_seconds": None},
        )
        look = Call(
            method="POST", path="/api/v1/weights_info", note="see that they are still there", body={"tinker_path": self._path}
        )
        return Plan(
            target="tinker",
            version=f"{self._info.name}@{self._info.version}",
            policy_version=self._info.policy.policy_version,
            wanted=self._wanted,
            where=self._url,
            calls=(look, keep),
            price=f"unknown: the service's interface tells no prices; it bills stored weights and sampled tokens, see {PRICES}",
            model=self._path,
            endpoint=f"{self._url}/oai/api/v1",
        )

    def deploy(self, plan: Plan) -> None:
        rank = self._about().lora_rank
        if rank is None:
            raise DataError("the weights there are no adapter", self._path, "name a version that was trained there")
        self._keep(None)

    def state(self, record: Deployed) -> str:
        with suppress(DataError):
            return "READY" if self._about() else "gone"
        return "gone"

    def end(self, record: Deployed) -> None:
        with suppress(DataError):  # expired since
            self._keep(_WEEK)

    def _about(self) -> Any:
        return self._ask("weights_info", "get_weights_info_by_tinker_path", self._path)

    def _keep(self, seconds: int | None) -> None:
        self._ask("set_ttl", "set_checkpoint_ttl_from_tinker_path", self._path, seconds)

    def _ask(self, name: str, method: str, *arguments: object) -> Any:
        import tinker

        from clawpipe.model.hosted.tinker_errors import told_as_ours

        with told_as_ours(self._url):
            client = tinker.RestClient(base_url=self._url)
            return self._service.ask(name, getattr(client, method)(*arguments))


def _require_possible(info: ModelVersionInfo, wanted: Wanted) -> None:
    if not (info.policy.remote or "").startswith(_SCHEME):
        raise NotFoundError(
            "the service takes no weights from outside, and this version was not trained there",
            version_name(info.uri),
            "train with train.backend at tinker, or deploy it --to fireworks",
        )
    if wanted.method != "lora" or wanted.gpus or wanted.gpu or wanted.base or wanted.gpu_hour:
        given = "--method merged, --gpus, --gpu, --gpu-hour and --base"
        raise ConfigError(f"the service serves adapters on GPUs of its own: {given} have no meaning there", "--to tinker")
    if wanted.project:
        fix = "set TINKER_PROJECT_ID in the environment of the night that trains"
        raise ConfigError("weights belong to the project of their training there", "--project", fix)
    if not os.environ.get(KEY):
        raise ConfigError(f"{KEY} is not in the environment", "--to tinker", f"set {KEY} to a key of your account")
    if find_spec("tinker") is None:
        raise ConfigError("the library of the service is not installed", "--to tinker", "pip install 'clawpipe[tinker]'")
