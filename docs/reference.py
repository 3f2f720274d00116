"""The pages of the reference, made from what the program reads: settings from the config's models, commands from the command line,
contracts from data_contracts/, reasons from the code that gives them. `docs/hooks.py` puts them into the site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from typing import Any, get_args

import typer.main
import yaml
from disbelieved import disbelieved
from pydantic import BaseModel

from clawpipe.cli.main import app
from clawpipe.core.config.night import NightConfig
from clawpipe.core.contracts.odcs import ROOT

# Units of numbers, by the end of a setting's name; the first that fits.
_UNITS = (
    (r"seconds|step_timeout", "s"),
    (r"curation_memory", "MB or GB"),
    (r"per_group", "pairs"),
    (r"per_(session|user|item|source)|captured|batch_rows|sampling\.rows", "rows"),
    (r"tokens|normaliser", "tokens"),
    (r"heldout_words|repetition_words", "words"),
    (r"items", "task items"),
    (r"turns", "turns"),
    (r"group_size|shard_rollouts", "rollouts"),
    (r"chunks", "tasks"),
    (r"rounds|curriculum", "rounds"),
    (r"nights|sampling\.night", "nights"),
    (r"epochs", "passes"),
    (r"optimizer_steps|warmup_steps|max_steps|checkpoint_steps|patience", "optimizer steps"),
    (r"max_staleness", "policy versions"),
    (r"max_kl|opsm_delta|opd\.clip", "nats"),
    (r"workers|train_processes", "processes"),
    (r"train_threads", "threads"),
    (r"repeats|candidates|top_k|rank", "count"),
)


def settings() -> str:
    """Every setting of a night: a table a block."""
    lines = [
        "# Settings",
        "",
        "Settings of a night, for its YAML file and for `-o block.field=value`. `clawpipe config schema` prints them as JSON",
        "Schema, and `clawpipe config show` those of a night. A dash stands for a number without a unit. What they are called",
        "elsewhere: [settings](../settings.md).",
        "",
    ]
    return "\n".join([*lines, *_block(NightConfig, "")]) + "\n"


def _block(model: type[BaseModel], name: str) -> Iterator[str]:
    """The table of a block, and after it those of the blocks within."""
    schema = model.model_json_schema(by_alias=False)
    inner = {key: found for key, field in model.model_fields.items() if (found := _model_of(field.annotation))}
    yield f"## {f'`{name}`' if name else 'The night'}"
    yield ""
    yield from ([_sentence(model.__doc__ or ""), ""] if model.__doc__ else [])
    yield "| setting | type | default | unit | meaning |"
    yield "|---|---|---|---|---|"
    for key, field in schema["properties"].items():
        if key not in inner:
            yield _row(f"{name}.{key}" if name else key, key, field, schema.get("$defs", {}))
    yield ""
    for key, found in inner.items():
        yield from _block(found, f"{name}.{key}" if name else key)


def _row(path: str, key: str, field: dict[str, Any], definitions: dict[str, Any]) -> str:
    """One setting.

    Raises:
        ValueError: nobody says what it means.
    """
    if "description" not in field:
        raise ValueError(f"{path} has no description")
    default = yaml.safe_dump(field.get("default"), default_flow_style=True).removesuffix("\n").removesuffix("\n...")
    cells = (f"`{key}`", _type(field, definitions), f"`{default}`", _unit(path, field), field["description"])
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """The block that a field holds, also where it may be null; none for lists of blocks."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel) and (kind is annotation or type(None) in get_args(annotation)):
            return kind
    return None


def _type(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    """What a JSON Schema allows, for people."""
    if "$ref" in field:
        return _type(definitions[field["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in field:
        return " or ".join(_type(one, definitions) for one in field["anyOf"])
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if field.get("type") == "array":
        kinds = field.get("prefixItems") or [field.get("items", {})]
        return f"list of {' and '.join(_type(one, definitions) for one in kinds)}"
    bounds = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    limits = ", ".join(f"{sign} {field[name]:g}" for name, sign in bounds.items() if name in field)
    names = {"object": "mapping", "null": "null", "boolean": "true or false"}
    return f"{names.get(field.get('type', ''), field.get('type', 'any'))} {limits}".strip()


def _unit(path: str, field: dict[str, Any]) -> str:
    """A number's unit; nothing for what is none."""
    known = next((unit for ending, unit in _UNITS if re.search(rf"(^|[._])({ending})$", path)), None)
    number = re.search(r"'(number|integer)'", str({key: field[key] for key in ("type", "anyOf", "prefixItems") if key in field}))
    return (known or "-") if number or path.endswith("curation_memory") else ""


def _plain(text: str | None) -> str:
    """Return a help text without the marks that keep rich from reading its brackets."""
    return (text or "").replace("\\[", "[")


def commands() -> str:
    """Every command: what it does, its arguments and options."""
    root = typer.main.get_command(app)
    lines = ["# Commands", "", root.help or "", "", root.epilog or "", ""]
    return "\n".join([*lines, *(line for path, command in _commands(root, "clawpipe") for line in _command(path, command))]) + "\n"


def _commands(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    for key, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{name} {key}")
        else:
            yield f"{name} {key}", command


def _command(path: str, command: Any) -> Iterator[str]:
    context = command.context_class(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    yield from (f"## {path.removeprefix('clawpipe ')}", "", "```text", usage, "```", "", _plain(command.help), "")
    shown = [one for one in command.params if one.name != "help" and not one.hidden]
    if shown:
        yield from ("| argument or option | default | meaning |", "|---|---|---|")
    for one in shown:
        words = (*one.opts, *one.secondary_opts) if one.param_type_name == "option" else (one.name.upper(),)
        names = ", ".join(f"`{word}`" for word in words)
        choices = get_args(one.type_descriptor.annotation) if "Literal" in str(one.type_descriptor.annotation) else ()
        allowed = f" One of {', '.join(f'`{choice}`' for choice in choices)}." if choices else ""
        default = "" if one.default in (None, False, []) or one.required else f"`{one.default}`"
        yield f"| {names} | {default} | {(_plain(one.help) + allowed).replace('|', chr(92) + '|')} |"
    yield ""


def contracts() -> str:
    """Every contract in its newest version: what a row is, its columns, its rules."""
    lines = [
        "# Contracts",
        "",
        "What each dataset must look like. How versions change, and what happens to rows that break a rule:",
        "[contracts](../contracts.md).",
        "",
    ]
    for file in _newest():
        lines += _contract(yaml.safe_load(file.read_text(encoding="utf-8")))
    return "\n".join(lines) + "\n"


def _newest() -> Iterator[Traversable]:
    """The file of each contract's newest major version, by name."""
    for folder in sorted((one for one in ROOT.iterdir() if one.is_dir()), key=lambda one: one.name):
        major = {int(number[1]): file for file in folder.iterdir() if (number := re.fullmatch(r"v(\d+)\.odcs\.yaml", file.name))}
        if major:
            yield major[max(major)]


def _contract(contract: dict[str, Any]) -> Iterator[str]:
    [table] = contract["schema"]
    yield from (f"## {contract['name']} {contract['version']}", "", contract["description"]["purpose"], "")
    yield from (table["dataGranularityDescription"], "", "| column | type | required | meaning |", "|---|---|---|---|")
    for path, column in _columns(table["properties"], ""):
        required = "yes" if column.get("required") else ""
        meaning = " ".join(column.get("description", "").split()).replace("|", "\\|")
        yield f"| `{path}` | {_logical(column)} | {required} | {meaning} |"
    rules = [rule for rule in table.get("quality", []) if "description" in rule]
    yield from ("", *(f"- {' '.join(rule['description'].split())}" for rule in rules), "")


def _columns(columns: list[dict[str, Any]], within: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Columns and the fields of those that are structs or lists of them."""
    for column in columns:
        yield f"{within}{column['name']}", column
        inner = column.get("items", column)
        yield from _columns(inner.get("properties", []), f"{within}{column['name']}{'[]' if 'items' in column else ''}.")


def _logical(column: dict[str, Any]) -> str:
    """string, number (f64), list of integer (i32) ..."""
    if "items" in column:
        return f"list of {_logical(column['items'])}"
    form = column.get("logicalTypeOptions", {}).get("format")
    return column["logicalType"] + (f" ({form})" if form else "")


def _sentence(text: str) -> str:
    return " ".join(text.split())


PAGES = {
    "reference/settings.md": settings,
    "reference/commands.md": commands,
    "reference/contracts.md": contracts,
    "reference/disbelieved.md": disbelieved,
}
