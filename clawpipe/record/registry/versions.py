"""Model versions: registered once, looked up by alias or number, downloaded and checked.

Registration may be killed anywhere and repeated: the package's idempotency key finds what exists already, and a version is
created last, after the uploaded files were downloaded again and checked.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.utils.file_utils import local_file_uri_to_path
from mlflow.utils.uri import is_local_uri
from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.store.refs import ModelRef
from clawpipe.core.system import faults
from clawpipe.errors import ConfigError, DataError, NotFoundError
from clawpipe.model.policy.spec import base_name
from clawpipe.record.registry.client import (
    LEDGER_TAG,
    answered,
    changes,
    changes_here,
    claim,
    connect,
    require_ledger,
    unless_absent,
)
from clawpipe.record.registry.deployed import Deployed, deployed_of
from clawpipe.record.registry.names import version_uri
from clawpipe.record.registry.night_summary import description, readable_tags
from clawpipe.record.registry.package import Package, package_digest, verify_package
from clawpipe.record.registry.runs import NightRun, experiment_id, log_night, log_output
from clawpipe.record.registry.tags import earlier, internal, internals
from clawpipe.record.registry.tracking import Tracking

CHAMPION = "champion"
FILES_REMOVED = internal("files_removed")  # a version's tag with the date on which `clawpipe gc` removed its files
_URI = re.compile(r"models:/(?P<name>[A-Za-z0-9][A-Za-z0-9_-]*)(@(?P<alias>[A-Za-z0-9_-]+)|/(?P<version>[0-9]+))")
PARENT = (
    "parent"  # tag with the number of the version that the training started from; a version that started from the base has none
)
_KEY, _MODEL_ID, _PACKAGE, _POLICY, _NIGHT = "key", "model_id", "package", "policy", "night"


class ModelVersionInfo(BaseModel):
    """A registered model version."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    version: str
    aliases: tuple[str, ...]
    policy: ModelRef
    key: str = Field(description="idempotency key")
    package: str = Field(description="digest of the package, hence of every file in it")
    night: str
    run_id: str = Field(description="MLflow run of the night")
    model_id: str = Field(description="MLflow logged model that holds the files")
    deployed: tuple[Deployed, ...] = Field(default=(), description="where services serve it, or did")
    files_removed: str = Field(default="", description="date on which `clawpipe gc` removed the files; empty: they are there")

    @property
    def uri(self) -> str:
        return f"models:/{self.name}/{self.version}"

    def require_files(self) -> None:
        """Raise if the files were removed.

        Raises:
            NotFoundError: it says how they come back.
        """
        if self.files_removed:
            fix = f"run its night {self.night} again, with the same settings: it registers the same model again"
            raise NotFoundError(f"`clawpipe gc` removed this version's files on {self.files_removed}", self.uri, fix)


def register(tracking: Tracking, package: Path, check: Callable[[Path], None], run: NightRun) -> ModelVersionInfo:
    """Register a package once: a repeated call returns the existing version, and repairs its files if they were damaged.

    The version keeps the night, the verdict and the figures of its registration, as its files and its run do. If another night
    comes to the same weights, that night's record has its verdict, and the ledger says which night promoted the version.

    Args:
        tracking: the registry.
        package: directory written by `clawpipe.record.registry.package.write_package`.
        check: called with the directory of the downloaded copy before a version is made of it; raises if the model does not
        behave like the trained one.
        run: the night's run, for MLflow's lineage.

    Raises:
        DataError: the package or its registered copy is damaged.
        BusyError: the MLflow server does not answer.
    """
    described = verify_package(package)
    if described.model_name != tracking.model_name:
        raise DataError(f"a package of {described.model_name!r} is no version of {tracking.model_name!r}", str(package))
    with changes(tracking) as client:
        claim(client, tracking, tracking.ledger())
        found = _find(client, described)
        if found:
            _repair(client, tracking, found, package, check)
            return found
        run_id = log_night(client, tracking, run)
        model_id = _logged_model(client, tracking, described, run_id)
        _upload(client, tracking, model_id, package, check)
        client.finalize_logged_model(model_id, "READY")
        log_output(client, run_id, model_id)
        faults.kill_point("registry.before_version")
        _create_model(client, tracking)
        return _create_version(client, described, model_id, run_id, package_digest(package))


def champion(tracking: Tracking) -> ModelVersionInfo | None:
    """Return the version in service, or None. Nothing is created."""
    if not tracking.exists:
        return None
    client = connect(tracking)
    found = unless_absent(lambda: client.get_model_version_by_alias(tracking.model_name, CHAMPION))
    return version_info(found) if found else None


def resolve(tracking: Tracking, uri: str) -> ModelVersionInfo:
    """Return the version that `NAME@alias` or `NAME@3` names; MLflow's `models:/NAME@alias` and `models:/NAME/3` will do.

    Raises:
        ConfigError: it has another form.
        NotFoundError: the version does not exist.
        DataError: another tool registered the version.
    """
    parts = _URI.fullmatch(version_uri(uri))
    if not parts:
        raise ConfigError(f"{uri!r} names no model version", fix="write NAME@champion or NAME@3")
    client, name, alias = connect(tracking), parts["name"], parts["alias"]
    found = unless_absent(
        lambda: client.get_model_version_by_alias(name, alias) if alias else client.get_model_version(name, parts["version"])
    )
    if found is None:
        raise NotFoundError("the model version does not exist", uri, "`clawpipe models list` shows all versions")
    return version_info(found)


def download(tracking: Tracking, uri: str) -> tuple[Path, ModelVersionInfo]:
    """Download the package of a version, checked against the digest in the registry; return its directory and the version.

    Raises:
        ConfigError, NotFoundError, DataError: see `resolve`; DataError also if the files are damaged.
    """
    info = resolve(tracking, uri)
    info.require_files()
    directory = tracking.packages / info.package
    with changes_here(tracking) as client:
        if not _intact(directory, info.package):
            copy = _fetch(client, tracking, info.model_id, info.package)
            if directory.exists():
                os.replace(directory, tracking.scratch / "damaged")
            tracking.packages.mkdir(parents=True, exist_ok=True)
            os.replace(copy, directory)
    return directory, info


def is_intact(tracking: Tracking, info: ModelVersionInfo) -> bool:
    """Return whether the version's files are intact: checked if they are on this machine, else assumed if the model exists."""
    client = connect(tracking)
    model = unless_absent(lambda: client.get_logged_model(info.model_id))
    if model is None:
        return False
    location = model.artifact_location
    return not is_local_uri(location) or _intact(Path(local_file_uri_to_path(location)), info.package)


def _find(client: MlflowClient, package: Package) -> ModelVersionInfo | None:
    number = _with_key(client, package.model_name, package.key)
    return version_info(client.get_model_version(package.model_name, number)) if number else None  # a search tells no aliases


def _with_key(client: MlflowClient, model: str, key: str) -> str | None:
    for tag in (internal(_KEY), earlier(_KEY)):
        if found := client.search_model_versions(f"name='{model}' and tags.`{tag}`='{key}'"):
            return str(found[0].version)
    return None


def _logged_model(client: MlflowClient, tracking: Tracking, package: Package, run_id: str) -> str:
    """Return the id of the MLflow model for the files: one that a killed try left, else a new one, PENDING."""
    experiment = experiment_id(client, tracking)
    left = client.search_logged_models([experiment], f"tags.`{internal(_KEY)}` = '{package.key}'", max_results=1)
    if left:
        return left[0].model_id
    tags = {internal(_KEY): package.key, internal(_NIGHT): package.night}
    kind = "lora" if package.policy.adapter else "model"
    name = package.policy.name
    return client.create_logged_model(experiment, name=name, source_run_id=run_id, tags=tags, model_type=kind).model_id


def _upload(client: MlflowClient, tracking: Tracking, model_id: str, package: Path, check: Callable[[Path], None]) -> None:
    """Upload, download again, check. Files of a killed try are overwritten."""
    client.log_model_artifacts(model_id, str(package))
    faults.kill_point("registry.after_upload")
    check(_fetch(client, tracking, model_id, package_digest(package)))


def _fetch(client: MlflowClient, tracking: Tracking, model_id: str, digest: str) -> Path:
    """Download into the scratch directory and verify. Not through `models:/`, which MLflow resolves in its default registry."""
    location = client.get_logged_model(model_id).artifact_location
    target = tempfile.mkdtemp(dir=tracking.scratch)
    try:
        with answered(tracking):
            copy = download_artifacts(artifact_uri=location, dst_path=target, tracking_uri=tracking.uri, registry_uri=tracking.uri)
    except (MlflowException, OSError) as error:
        raise DataError(f"the registered files cannot be read: {error}", location) from None
    verify_package(Path(copy), digest)
    return Path(copy)


def _intact(directory: Path, digest: str) -> bool:
    try:
        verify_package(directory, digest)
    except DataError:
        return False
    return True


def _repair(
    client: MlflowClient, tracking: Tracking, found: ModelVersionInfo, package: Path, check: Callable[[Path], None]
) -> None:
    """Upload files again that were damaged since; another package with the same key cannot replace them."""
    try:
        _fetch(client, tracking, found.model_id, found.package)
    except DataError:
        if found.package != package_digest(package):
            raise
        _upload(client, tracking, found.model_id, package, check)
        client.delete_model_version_tag(found.name, found.version, FILES_REMOVED)


def _create_model(client: MlflowClient, tracking: Tracking) -> None:
    """Create the registered model unless it is there, with its ledger: of two homes without a common lock, one creates it."""
    ledger = tracking.ledger()
    if unless_absent(lambda: client.get_registered_model(tracking.model_name)) is None:
        try:
            client.create_registered_model(tracking.model_name, tags={LEDGER_TAG: ledger.identity()})
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        require_ledger(client, tracking, ledger)


def _create_version(client: MlflowClient, package: Package, model_id: str, run_id: str, digest: str) -> ModelVersionInfo:
    method = str(package.config.get("train", {}).get("method", ""))
    facts = {
        _KEY: package.key,
        _MODEL_ID: model_id,  # MLflow does not store it if the registry is a database
        _PACKAGE: digest,
        _POLICY: package.policy.model_dump_json(),
        _NIGHT: package.night,
        **{f"dataset.{role}": dataset.digest for role, dataset in package.datasets.items()},
    }
    tags = {
        **readable_tags(method, base_name(package.policy.base_name), package.environment, package.verdict),
        **_parent(client, package),
        **{internal(name): value for name, value in facts.items()},
    }
    source = client.get_logged_model(model_id).artifact_location  # "models:/ID" would be looked up in the default registry
    text = description(package.compared, package.verdict)
    version = client.create_model_version(package.model_name, source, run_id=run_id, tags=tags, model_id=model_id, description=text)
    return version_info(version)


def _parent(client: MlflowClient, package: Package) -> dict[str, str]:
    """Return the tag that names the version which the training started from; none if it started from the base."""
    champion = package.verdict.models.get("champion")
    if champion is None or package.config.get("train", {}).get("start_from") != "champion":
        return {}
    number = _with_key(client, package.model_name, champion.policy_version)
    return {PARENT: number} if number else {}


def version_info(version: ModelVersion, aliases: Iterable[str] | None = None) -> ModelVersionInfo:
    """Convert an MLflow version.

    Args:
        aliases: of a version that a search has found, which names none.

    Raises:
        DataError: it lacks clawpipe's tags.
    """
    tags = internals(version.tags)
    where = f"models:/{version.name}/{version.version}"
    if not {_KEY, _MODEL_ID, _PACKAGE, _POLICY, _NIGHT} <= tags.keys():
        raise DataError("this model version was not registered by clawpipe", where)
    return ModelVersionInfo(
        name=version.name,
        version=str(version.version),
        aliases=tuple(sorted(version.aliases if aliases is None else aliases)),
        policy=ModelRef.model_validate(json.loads(tags[_POLICY])),
        key=tags[_KEY],
        package=tags[_PACKAGE],
        night=tags[_NIGHT],
        run_id=version.run_id or "",
        model_id=tags[_MODEL_ID],
        deployed=deployed_of(version),
        files_removed=version.tags.get(FILES_REMOVED, ""),
    )
