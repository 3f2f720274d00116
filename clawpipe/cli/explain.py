"""`clawpipe explain`: what a name is here, of a setting, or of another system's setting, command, variable or metric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clawpipe.cli.output import JsonFlag, print_json
from clawpipe.core.basics.json_types import JsonObject

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from clawpipe.core.config.names.table import Known


def explain(
    name: Annotated[
        list[str],
        typer.Argument(
            help="A setting of clawpipe, or a name of OpenClaw-RL, Hermes, Atropos, MonoClaw, Tinker, TRL, axolotl, verl or slime."
        ),
    ],
    json_output: JsonFlag = False,
) -> None:
    """Say what a name is here: a setting, a command with its flags, a variable, a metric. A command may be given whole."""
    asked = " ".join(name)
    setting, known = _setting(asked), _known(asked)
    if setting is None and not known:
        _refuse(asked)
    if json_output:
        print_json({"name": asked, "setting": setting, "meanings": [_as_json(one) for one in known]})
        return
    for line in _lines(asked, setting, known):
        typer.echo(line)


def _setting(name: str) -> JsonObject | None:
    """Return what a setting of a night is; None if there is none of this name."""
    from clawpipe.core.config.load import setting_field

    field = setting_field(name)
    return None if field is None else {"about": field.description or "", "default": _default(field)}


def _default(field: FieldInfo) -> Any:
    value = field.get_default(call_default_factory=not field.is_required()) if not field.is_required() else None
    return value if isinstance(value, str | int | float | bool | None) else None


def _known(name: str) -> list[Known]:
    from clawpipe.core.config.names.table import meanings

    return meanings(name)


def _as_json(known: Known) -> JsonObject:
    about = {target: found["about"] for target in known.targets if (found := _setting(target))}
    return {"system": known.system, "name": known.name, "targets": list(known.targets), "note": known.note, "about": about}


def _lines(asked: str, setting: JsonObject | None, known: list[Known]) -> Iterator[str]:
    if setting is not None:
        yield f"{asked}: {setting['about']} (default: {setting['default']})"
    for one in known:
        yield f"{one.system}, {one.name}:"
        for target in one.targets or ("not here",):
            about = _setting(target)
            yield f"  {target}" + (f": {about['about']}" if about else "")
        if one.note:
            yield f"  {one.note}"


def _refuse(asked: str) -> None:
    from clawpipe.core.config.names.table import near
    from clawpipe.errors import NotFoundError

    found = near(asked)
    fix = f"did you mean {', '.join(found)}?" if found else "`clawpipe config schema` lists every setting"
    raise NotFoundError("no such name", asked, fix)
