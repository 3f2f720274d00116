"""Read a night's config from a YAML file with dotted overrides; errors name file, field and allowed values."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.masking import setting_without_secret
from clawpipe.core.basics.plain_yaml import parse_yaml
from clawpipe.core.config.block import Block
from clawpipe.core.config.names.table import meanings
from clawpipe.core.config.night import NightConfig
from clawpipe.errors import ConfigError, NotFoundError

Location = tuple[int | str, ...]
_UNKNOWN = "extra_forbidden"
_FOREIGN = 2  # systems that are named in one message
_PREFIX = "Value error, "  # put by pydantic before a validator's message
_PACKAGE = Path(__file__).parents[2]


def explain(error: ValidationError, root: type[Block], path: Path, overrides: Sequence[str] = ()) -> ConfigError:
    """Turn a validation error into one with the place of the first mistake; other places stand beside their mistakes.

    Args:
        root: the block that was validated.
        path: the YAML file with the values.
        overrides: `block.field=value` on top of the file.
    """
    lines = [(_place(mistake["loc"], path, overrides), _what(mistake, root)) for mistake in error.errors()]
    (where, first), *others = lines
    what = "; ".join([first, *(f"{text} ({place})" if place != where else text for place, text in others)])
    return ConfigError(what, where, "`clawpipe config schema` lists every field")


def explained(error: ValidationError, root: type[Block]) -> str:
    """Say what is wrong, without a place."""
    return "; ".join(_what(mistake, root) for mistake in error.errors())


def _what(mistake: ErrorDetails, root: type[Block]) -> str:
    name = ".".join(map(str, mistake["loc"]))
    if mistake["type"] != _UNKNOWN:
        return f"{name or 'config'}: {mistake['msg'].removeprefix(_PREFIX)}{_elsewhere(name, mistake['input'])}"
    if new := new_names().get(name):
        return _called_now(name, new)
    known, last = list(settings_of(root)), name.rpartition(".")[2]
    is_elsewhere = any(setting.rpartition(".")[2] == last for setting in known)
    if not is_elsewhere and (foreign := meanings(name) or meanings(last)):
        return f"{name}: no such setting; {'; '.join(dict.fromkeys(map(str, foreign[:_FOREIGN])))}"
    near = _nearest(name, known)
    return f"{name}: no such setting" + (f"; did you mean {near}?" if near else "")


def _elsewhere(name: str, value: object) -> str:
    """Return what a refused value of a setting is called here, if another system has it."""
    known = meanings(value) if isinstance(value, str) else []
    return "".join(f"; {one}" for one in known if name in one.targets)


def _nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the known setting with the most similar name: in the same block, else with the same last word, else anywhere."""
    block, _, last = name.rpartition(".")
    beside = {
        setting.removeprefix(f"{block}.") if block else setting
        for setting in known
        if setting.startswith(f"{block}." if block else "")
    }
    if near := difflib.get_close_matches(last, sorted({setting.partition(".")[0] for setting in beside}), 1):
        return f"{block}.{near[0]}" if block else near[0]
    elsewhere = [setting for setting in known if setting.rpartition(".")[2] == last]
    return next(iter(elsewhere or difflib.get_close_matches(name, known, 1)), None)


def settings_of(block: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings of a block, including those of nested blocks."""
    for name, field in block.model_fields.items():
        inner = _block_in(field.annotation)
        yield from settings_of(inner, f"{prefix}{name}.") if inner else [f"{prefix}{name}"]


def setting_field(name: str) -> FieldInfo | None:
    """Return the field of a setting, or of a block, by its dotted name; None if a night has none of it."""
    block: type[BaseModel] | None = NightConfig
    field: FieldInfo | None = None
    for part in name.split("."):
        field = block.model_fields.get(part) if block else None
        block = _block_in(field.annotation) if field else None
    return field


@cache
def new_names() -> dict[str, str]:
    """The dotted name of each setting that was renamed, by the name that it had before."""
    return dict(_renamed(NightConfig))


def _renamed(block: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, field in block.model_fields.items():
        if isinstance(field.validation_alias, AliasChoices):
            yield from ((f"{prefix}{old}", f"{prefix}{name}") for old in field.validation_alias.choices if old != name)
        elif inner := _block_in(field.annotation):
            yield from _renamed(inner, f"{prefix}{name}.")


def _refuse_old_names(values: JsonObject, where: Path) -> None:
    """Refuse settings by names that ended with 0.2, which stored records may still hold."""
    for old, new in new_names().items():
        *blocks, field = old.split(".")
        block: Any = values
        for name in blocks:
            block = block.get(name) if isinstance(block, dict) else None
        if isinstance(block, dict) and field in block:
            raise _old_name(old, new, _place(tuple(old.split(".")), where, ()))


def _old_name(old: str, new: str, where: str) -> ConfigError:
    return ConfigError(_called_now(old, new), where, f"write {new}")


def _called_now(old: str, new: str) -> str:
    return f"{old} is called {new} since 0.2"


def _block_in(annotation: Any) -> type[BaseModel] | None:
    choices = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return next((choice for choice in choices if isinstance(choice, type) and issubclass(choice, Block)), None)


def _place(loc: Location, path: Path, overrides: Sequence[str]) -> str:
    """Return `-o train.methd=sft`, or `night.yaml:3`, or the file if no line can be named."""
    name = ".".join(map(str, loc))
    named = [(f"{override.partition('=')[0]}.", override) for override in overrides if name]
    given = [override for key, override in named if f"{name}.".startswith(key)]
    if given:
        return f"-o {setting_without_secret(given[-1])}"
    line = _line(path, loc)
    return f"{path}:{line}" if line else str(path)


def _line(path: Path, loc: Location) -> int | None:
    """Return the line of the innermost key of `loc` that the file has."""
    node, line = yaml.compose(path.read_text(encoding="utf-8"), yaml.SafeLoader), None
    for part in loc:
        key, node = _below(node, part)
        if key is None:
            break
        line = key.start_mark.line + 1
    return line


def _below(node: yaml.Node | None, part: int | str) -> tuple[yaml.Node | None, yaml.Node | None]:
    """Return key and value of a part of a mapping or sequence; (None, None) if there is none."""
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == str(part)), (None, None))
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None, None


def load_config(path: Path, overrides: Iterable[str] = ()) -> NightConfig:
    """Load the config in `path` with `block.field=value` overrides, whose values are YAML.

    Raises:
        NotFoundError: the file does not exist.
        ConfigError: the file is not YAML, a field is unknown, or a value is not allowed.
    """
    path, overrides = shipped(path), list(overrides)
    values = read_yaml(path)
    _refuse_old_names(values, path)
    for override in overrides:
        _override(values, override)
    try:
        return NightConfig.model_validate(values)
    except ValidationError as error:
        raise explain(error, NightConfig, path, overrides) from None


def with_settings(config: NightConfig, settings: Mapping[str, Any]) -> NightConfig:
    """Return `config` with other values of some fields, by dotted name.

    Raises:
        ConfigError: a field is unknown, or the values are not allowed, alone or together.
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
    """Return `path`, or if nothing exists there, the file of this name that clawpipe ships: `configs/demo.yaml` is found from any
    directory."""
    return path if path.is_absolute() or path.exists() else shipped_file(str(path)) or path


def shipped_file(name: str) -> Path | None:
    """Return a file that clawpipe ships beside its code. A wheel holds it within the package, a clone beside the package."""
    return next((file for root in (_PACKAGE, _PACKAGE.parent) if (file := root / name).exists()), None)


def read_yaml(path: Path) -> JsonObject:
    try:
        values = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError("the config file does not exist", str(path), "the shipped ones lie in configs/") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"not a readable YAML file: {error}", str(path)) from None
    if not isinstance(values, dict):
        raise ConfigError("a config is a mapping of blocks", str(path))
    return values


def _override(values: JsonObject, override: str) -> None:
    name, separator, text = override.partition("=")
    if not separator or not name:
        raise ConfigError(f"{override!r} is not an override", fix="write block.field=value, e.g. train.method=sft")
    if any("\ud800" <= character <= "\udfff" for character in override):  # command line bytes that the encoding cannot decode
        raise ConfigError("the value is no text in the encoding of this environment", name, "set PYTHONUTF8=1")
    if new := new_names().get(name):
        raise _old_name(name, new, f"-o {setting_without_secret(override)}")
    try:
        value = parse_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"the value is not YAML: {' '.join(str(error).split())}", name, f"quote it: '{name}=\"...\"'") from None
    is_other = not isinstance(value, str | None) and _is_text(
        name
    )  # `night=no` and `night={date}` are a truth and a mapping in YAML
    _set(values, name, text if is_other else value)


def _is_text(name: str) -> bool:
    """Return whether a setting takes a text and nothing else, but for null."""
    kind: Any = NightConfig
    for part in name.split("."):
        field = block.model_fields.get(part) if (block := _block_in(kind)) else None
        if field is None:
            return False
        kind = field.annotation
    return kind is str or set(get_args(kind)) == {str, type(None)}


def _set(values: JsonObject, name: str, value: Any) -> None:
    *blocks, field = name.split(".")
    for block in blocks:
        inner: Any = values.setdefault(block, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{block!r} has no fields", where=name)
        values = inner
    values[field] = value
