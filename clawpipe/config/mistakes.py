"""Mistakes in settings, as people are told: what is wrong, where it was written, and which setting was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from clawpipe.config.block import Block
from clawpipe.errors import ConfigError

Location = tuple[int | str, ...]
_UNKNOWN = "extra_forbidden"
_PREFIX = "Value error, "  # pydantic's, before what a validator of ours says


def explain(error: ValidationError, root: type[Block], path: Path, overrides: Sequence[str] = ()) -> ConfigError:
    """The error that a person can act on, at the first mistake's place; other places stand beside their mistakes.

    Args:
        root: the block that was validated.
        path: the YAML file that its values are from.
        overrides: `block.field=value` on top of it.
    """
    lines = [(_place(mistake["loc"], path, overrides), _what(mistake, root)) for mistake in error.errors()]
    (where, first), *others = lines
    what = "; ".join([first, *(f"{text} ({place})" if place != where else text for place, text in others)])
    return ConfigError(what, where, "`clawpipe config schema` lists every field")


def explained(error: ValidationError, root: type[Block]) -> str:
    """What is wrong, without a place."""
    return "; ".join(_what(mistake, root) for mistake in error.errors())


def _what(mistake: ErrorDetails, root: type[Block]) -> str:
    name = ".".join(map(str, mistake["loc"]))
    if mistake["type"] != _UNKNOWN:
        return f"{name or 'config'}: {mistake['msg'].removeprefix(_PREFIX)}"
    near = _nearest(name, list(settings_of(root)))
    return f"{name}: no such setting" + (f"; did you mean {near}?" if near else "")


def _nearest(name: str, known: Sequence[str]) -> str | None:
    """The known setting of nearly this name: in the same block, else by its last word wherever that is, else nearly this in all."""
    block, _, last = name.rpartition(".")
    beside = {one.removeprefix(f"{block}.") if block else one for one in known if one.startswith(f"{block}." if block else "")}
    if near := difflib.get_close_matches(last, sorted({one.partition(".")[0] for one in beside}), 1):
        return f"{block}.{near[0]}" if block else near[0]
    elsewhere = [one for one in known if one.rpartition(".")[2] == last]
    return next(iter(elsewhere or difflib.get_close_matches(name, known, 1)), None)


def settings_of(block: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted names of all settings of a block, those of the blocks in it included."""
    for name, field in block.model_fields.items():
        inner = _block_in(field.annotation)
        yield from settings_of(inner, f"{prefix}{name}.") if inner else [f"{prefix}{name}"]


def _block_in(annotation: Any) -> type[BaseModel] | None:
    choices = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return next((choice for choice in choices if isinstance(choice, type) and issubclass(choice, Block)), None)


def _place(loc: Location, path: Path, overrides: Sequence[str]) -> str:
    """`-o train.methd=sft`, or `night.yaml:3`, or the file where no line is to blame."""
    name = ".".join(map(str, loc))
    named = [(f"{one.partition('=')[0]}.", one) for one in overrides if name]
    given = [one for key, one in named if f"{name}.".startswith(key)] or [one for key, one in named if key.startswith(f"{name}.")]
    if given:
        return f"-o {given[-1]}"
    line = _line(path, loc)
    return f"{path}:{line}" if line else str(path)


def _line(path: Path, loc: Location) -> int | None:
    """Line of the innermost key of `loc` that the file has."""
    node, line = yaml.compose(path.read_text(encoding="utf-8"), yaml.SafeLoader), None
    for part in loc:
        key, node = _below(node, part)
        if key is None:
            break
        line = key.start_mark.line + 1
    return line


def _below(node: yaml.Node | None, part: int | str) -> tuple[yaml.Node | None, yaml.Node | None]:
    """Key and value of a part of a mapping or a sequence; (None, None) where there is none."""
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == str(part)), (None, None))
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None, None
