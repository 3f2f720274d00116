"""Names of model versions: NAME@3 and NAME@alias, as people write them, and MLflow's models:/NAME/3 and models:/NAME@alias."""

from __future__ import annotations

import re

from clawpipe.errors import ConfigError

_MODEL = r"(?P<model>[A-Za-z0-9][A-Za-z0-9_-]*)"
_NAMED = re.compile(rf"(models:/)?{_MODEL}@(?P<which>[A-Za-z0-9_-]+)")
_NUMBERED = re.compile(rf"(models:/)?{_MODEL}/(?P<which>[0-9]+)")


def version_uri(name: str) -> str:
    """Return MLflow's URI of `NAME@3` or `NAME@alias`; any other name, such as a base model's, as it is."""
    found = _NAMED.fullmatch(name)
    return f"models:/{found['model']}{'/' if found['which'].isdigit() else '@'}{found['which']}" if found else name


def version_name(name: str) -> str:
    """Return `NAME@3` or `NAME@alias` for that, for MLflow's URI of it, and for `NAME/3`; any other name as it is."""
    found = _NAMED.fullmatch(name) or _NUMBERED.fullmatch(name)
    return f"{found['model']}@{found['which']}" if found else name


def model_name(name: str) -> str:
    """Return the name of a registered model. Raises ConfigError, with the model's name alone, if it names a version."""
    if found := _NAMED.fullmatch(name) or _NUMBERED.fullmatch(name):
        raise ConfigError(f"{name} is a version, and a model is asked for", "--model", f"write --model {found['model']}")
    if not re.fullmatch(_MODEL, name):
        raise ConfigError(f"{name!r} is no name of a registered model", "--model", "`clawpipe models list` shows their names")
    return name
