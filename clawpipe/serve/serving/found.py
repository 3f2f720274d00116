"""Find the model to serve: a registered version, the version that an alias names, or a base model on this machine."""

from __future__ import annotations

import json
from pathlib import Path

from clawpipe.core.config.registry import Registry, model_of_user
from clawpipe.core.conversation.messages import ToolCallFormat
from clawpipe.core.store.digests import sha256_file, sha256_json
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.errors import ConfigError, DataError, NotFoundError
from clawpipe.model.policy.base import BaseModel, resolve_base
from clawpipe.model.policy.spec import PolicySpec, policy_spec
from clawpipe.model.policy.version import adapter_ref, base_ref
from clawpipe.record.registry.package import restore_policy, verify_package
from clawpipe.record.registry.promotions import TrialAction, log_trial, rollback
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.registry.versions import CHAMPION, download, resolve
from clawpipe.serve.serving.served import ADAPTER, BASE, Served

_ADAPTER_CONFIG = "adapter_config.json"
_REGISTERED = "models:/"


def find(home: Home, uri: str) -> Served:
    """Download and verify the model version that `uri` names, and restore its artifact into the store.

    Raises:
        ConfigError, NotFoundError: the version does not exist.
        DataError: its files, or its base model, are not the ones that were evaluated.
    """
    directory, info = download(Tracking.of(home, Registry().model_name), uri)  # the name in `uri` decides
    package = verify_package(directory)
    store = open_store(home)
    policy = restore_policy(store, directory)
    if policy.digest != info.policy.digest:
        raise DataError(f"the files have digest {policy.digest[:12]}, the registry names {info.policy.digest[:12]}", info.uri)
    return Served(
        info.name, info.version, policy.digest, policy_spec(store, policy), package.tools, package.preamble, package.environment
    )


def find_base(name: str, tool_call_format: ToolCallFormat) -> Served:
    """Return a base model as a version called "base".

    Args:
        name: a directory, a built-in name or a hub id.
        tool_call_format: the format in which the model writes tool calls.

    Raises:
        NotFoundError, ConfigError: there is no such model, or it has no safetensors weights.
    """
    base = resolve_base(name)
    policy = base_ref(name, base.digest, tool_call_format, "float32")
    spec = PolicySpec(
        base=str(base.path), adapter=None, dtype="float32", tool_call_format=tool_call_format, policy_version=policy.policy_version
    )
    return Served(Path(name).expanduser().name, BASE, base.digest, spec)


def find_local(name: str, tool_call_format: ToolCallFormat) -> Served:
    """Return what no registry holds: the adapter in a directory, see `find_adapter`, else a base model, see `find_base`."""
    directory = Path(name).expanduser()
    if (directory / _ADAPTER_CONFIG).is_file():
        return find_adapter(directory, tool_call_format)
    return find_base(name, tool_call_format)


def find_adapter(directory: Path, tool_call_format: ToolCallFormat) -> Served:
    """Return an adapter that no registry holds, as peft writes it, on the base that it names; its version is called "adapter".

    Raises:
        ConfigError: its weights are no safetensors, or it does not say where its base is.
        NotFoundError: there is no such base.
    """
    weights = directory / "adapter_model.safetensors"
    if not weights.is_file():
        raise ConfigError("this adapter holds no adapter_model.safetensors", str(directory), "save it with peft as safetensors")
    base = _base_of(directory / _ADAPTER_CONFIG)
    start = base_ref(base.name, base.digest, tool_call_format, "float32")
    digest = sha256_json([sha256_file(directory / name) for name in (_ADAPTER_CONFIG, weights.name)])
    spec = PolicySpec(
        base=str(base.path),
        adapter=str(directory.resolve()),
        dtype="float32",
        tool_call_format=tool_call_format,
        policy_version=adapter_ref(start, digest, ()).policy_version,
    )
    return Served(directory.resolve().name, ADAPTER, digest, spec)


def _base_of(config: Path) -> BaseModel:
    """Return the base model that an adapter's config names; a folder is looked for from the adapter's own, too."""
    try:
        named = str(json.loads(config.read_bytes()).get("base_model_name_or_path") or "")
    except ValueError:
        named = ""
    if not named or named.startswith("sha256:"):
        fix = "write a directory or a hub id into its base_model_name_or_path"
        raise ConfigError("this adapter does not say where its base model is", str(config), fix)
    beside = config.parent / named
    return resolve_base(str(beside) if beside.is_dir() else named)


def champion_of(home: Home, name: str) -> Alias:
    """Return the alias of a model's version in service."""
    return Alias(home, f"{_REGISTERED}{name}@{CHAMPION}")


def champion_of_user(home: Home, name: str, user: str) -> Alias:
    """Return the alias of a user's own model, by the user's digest, beside the model that serves all."""
    return champion_of(home, model_of_user(name, user))


class Alias:
    """An alias in the registry, whose version may change.

    Args:
        home: the home of registry and store.
        uri: models:/NAME@ALIAS.
        until: model to serve while the alias names no version; None: that is an error.
    """

    def __init__(self, home: Home, uri: str, until: Served | None = None) -> None:
        self._home, self._uri, self._until = home, uri, until
        self._name, _, self._alias = uri.removeprefix(_REGISTERED).partition("@")
        self._tracking = Tracking.of(home, self._name)

    def version(self) -> str:
        """Return the version that the alias names now. Raises ClawpipeError if the registry does not answer."""
        try:
            return resolve(self._tracking, self._uri).version
        except NotFoundError:
            if self._until is None:
                raise
            return self._until.version

    def find(self, version: str) -> Served:
        """Return a version, downloaded and verified, see `find`."""
        if self._until and version == self._until.version:
            return self._until
        return find(self._home, f"{_REGISTERED}{self._name}/{version}")

    def go_back(self, version: str, reason: str) -> None:
        """Put the champion before `version` back in service, and write it into the promotion log; nothing if another is in service.

        Raises:
            NotFoundError: the alias is not `champion`, or there was no champion before.
            BusyError: another version is in service already.
        """
        if self._alias != CHAMPION:
            raise NotFoundError(f"only {CHAMPION} has a log of promotions, and {self._uri} is another alias")
        rollback(self._tracking, who="serve", reason=reason, expected=version)

    def log_trial(self, action: TrialAction, version: str, beside: str, reason: str) -> None:
        """Write the begin or end of a trial into the promotion log, which only `champion` has."""
        if self._alias == CHAMPION:
            log_trial(self._tracking, action, version, beside=beside, who="serve", reason=reason)
