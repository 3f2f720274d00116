"""Find the model to serve: a registered version, the version that an alias names, or a base model on this machine."""

from __future__ import annotations

from pathlib import Path

from clawpipe.config.registry import Registry, model_of_user
from clawpipe.errors import DataError, NotFoundError
from clawpipe.messages import ToolCallFormat
from clawpipe.policy.base import resolve_base
from clawpipe.policy.spec import PolicySpec, policy_spec
from clawpipe.policy.version import base_ref
from clawpipe.registry.package import restore_policy, verify_package
from clawpipe.registry.promotions import TrialAction, log_trial, rollback
from clawpipe.registry.tracking import Tracking
from clawpipe.registry.versions import CHAMPION, download, resolve
from clawpipe.serving.served import BASE, Served
from clawpipe.store.home import Home
from clawpipe.store.open import open_store

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


def champion_of_user(home: Home, name: str, user: str) -> Alias:
    """Return the alias of a user's own model, by the user's digest, beside the model that serves all."""
    return Alias(home, f"{_REGISTERED}{model_of_user(name, user)}@{CHAMPION}")


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
