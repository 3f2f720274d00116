"""Read a night's config: a YAML file, then dotted overrides; errors name file, field and what is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from clawpipe.config.mistakes import explain, explained
from clawpipe.config.night import NightConfig
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.plain_yaml import parse_yaml

_PROJECT = Path(__file__).parents[2]


def load_config(path: Path, overrides: Iterable[str] = ()) -> NightConfig:
    """The config in `path` with `block.field=value` overrides; values are read as YAML.

    Raises:
        NotFoundError: no such file.
        ConfigError: not YAML, an unknown field, or a value that is not allowed.
    """
    path, overrides = shipped(path), list(overrides)
    values = read_yaml(path)
    for override in overrides:
        _override(values, override)
    try:
        return NightConfig.model_validate(values)
    except ValidationError as error:
        raise explain(error, NightConfig, path, overrides) from None


def with_settings(config: NightConfig, settings: Mapping[str, Any]) -> NightConfig:
    """`config` with other values of some fields, by dotted name.

    Raises:
        ConfigError: an unknown field, or values that are not allowed, alone or together.
    """
    values = config.model_dump(mode="json")
    for name, value in settings.items():
        _set(values, name, value)
    try:
        return NightConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(
            explained(error, NightConfig), ", ".join(settings), "`clawpipe config schema` lists every field"
        ) from None


def shipped(path: Path) -> Path:
    """`path`; or, where nothing is there, what clawpipe's own project has under this name: `configs/demo.yaml` is found from
    any directory."""
    own = _PROJECT / path
    return own if not path.exists() and not path.is_absolute() and own.exists() else path


def read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError("no such config file", str(path), "the shipped ones lie in configs/") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"not a readable YAML file: {error}", str(path)) from None
    if not isinstance(values, dict):
        raise ConfigError("a config is a mapping of blocks", str(path))
    return values


def _override(values: dict[str, Any], override: str) -> None:
    name, separator, text = override.partition("=")
    if not separator or not name:
        raise ConfigError(f"{override!r} is not an override", fix="write block.field=value, e.g. train.method=sft")
    if any("\ud800" <= character <= "\udfff" for character in override):  # bytes of a command line that the encoding does not know
        raise ConfigError("the value is no text in the encoding of this environment", name, "set PYTHONUTF8=1")
    try:
        _set(values, name, parse_yaml(text))
    except yaml.YAMLError as error:
        raise ConfigError(f"the value is not YAML: {' '.join(str(error).split())}", name, f"quote it: '{name}=\"...\"'") from None


def _set(values: dict[str, Any], name: str, value: Any) -> None:
    *blocks, field = name.split(".")
    for block in blocks:
        values = values.setdefault(block, {})
        if not isinstance(values, dict):
            raise ConfigError(f"{block!r} has no fields of its own", where=name)
    values[field] = value
