"""Edit Hermes' config.yaml: its block `model` gets the gateway's URL, key and model, `mcp_servers` a server of tools. All other
lines and comments stay.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import yaml

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.plain_yaml import parse_yaml
from clawpipe.errors import ConfigError
from clawpipe.serve.agents.connection import Connection

_BLOCK, _SERVERS = "model", "mcp_servers"
_PASTE = "paste what `clawpipe connect hermes` prints, without --write"


def config_file(environment: Mapping[str, str]) -> Path:
    """Return the file that `hermes` would read: config.yaml in $HERMES_HOME, else in the home of the profile that
    `hermes profile use` has chosen, else in ~/.hermes; from hermes_constants.py and hermes_cli/main.py (0.19.0).
    """
    if home := environment.get("HERMES_HOME", "").strip():
        root = Path(home).absolute()
        return (root if root.parent.name == "profiles" else _profile(root)) / "config.yaml"
    if sys.platform == "win32" and (local := environment.get("LOCALAPPDATA", "").strip()):
        return _profile(Path(local) / "hermes") / "config.yaml"
    return _profile(Path(environment.get("HOME", "").strip() or Path.home()) / ".hermes") / "config.yaml"


def edited(text: str, connection: Connection) -> str:
    """Return the config with its block `model` replaced, or added at the end.

    Raises:
        ConfigError: the text is no YAML mapping, or the block cannot be replaced without a change of the rest.
    """
    return _with_block(text, _BLOCK, _block(connection))


def with_server(text: str, name: str, server: JsonObject) -> str:
    """Return the config with an MCP server added to its block `mcp_servers`, or replaced there.

    Raises:
        ConfigError: the text is no YAML mapping, or the block cannot take it without a change of the rest.
    """
    before = _parsed(text)
    known = before.get(_SERVERS) or {}
    if not isinstance(known, dict):
        raise ConfigError(f"{_SERVERS}: not a mapping of servers", fix=_PASTE)
    wanted = known | {name: server}
    if known.get(name) == server:
        return text
    if name in known or not known:
        return _with_block(text, _SERVERS, wanted)
    return _checked(_with_entry(text, name, server), _SERVERS, before | {_SERVERS: wanted})


def _with_entry(text: str, name: str, server: JsonObject) -> str:
    """Return the text with a server after the last one of the block, indented as the first is."""
    start, end = _place(text, _SERVERS) or (0, 0)
    first = re.search(r"\n( +)[^\s#]", text[start:end])
    indent = first[1] if first else ""
    line_end = text.find("\n", end)  # a comment may follow the last value
    after = len(text) if line_end < 0 else line_end
    return f"{text[:after]}\n{textwrap.indent(_dumped({name: server}).rstrip(chr(10)), indent)}{text[after:]}"


def _with_block(text: str, name: str, block: JsonObject) -> str:
    before = _parsed(text)
    lines, place = _dumped({name: block}), _place(text, name)
    if place:
        after = text[: place[0]] + lines.rstrip("\n") + text[place[1] :]
    else:
        after = text + ("\n" if text and not text.endswith("\n") else "") + lines
    return _checked(after, name, before | {name: block})


def _checked(after: str, name: str, wanted: JsonObject) -> str:
    if _parsed(after) != wanted:
        raise ConfigError(f"the block {name!r} cannot be replaced without a change of the rest", fix=_PASTE)
    return after


def _dumped(values: JsonObject) -> str:
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=1000)


def _block(connection: Connection) -> JsonObject:
    block: JsonObject = {"provider": "custom", "base_url": connection.url, "default": connection.model, "api_key": connection.key}
    return block | ({"context_length": connection.context} if connection.context else {})


def _parsed(text: str) -> JsonObject:
    try:
        values = parse_yaml(text)
    except yaml.YAMLError:
        raise ConfigError("not a readable YAML file", fix=_PASTE) from None
    if values is not None and not isinstance(values, dict):
        raise ConfigError("not a mapping of blocks", fix=_PASTE)
    return values or {}


def _place(text: str, name: str) -> tuple[int, int] | None:
    """Return where a block begins and ends in the text. Comments after its last value are not part of it."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        return None
    found = next((pair for pair in root.value if pair[0].value == name), None)
    return (found[0].start_mark.index, _end(found[1])) if found else None


def _end(node: yaml.Node) -> int:
    """Return the position at which a value ends. PyYAML's end marks include the comments and blank lines up to the next key."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return node.end_mark.index


def _profile(root: Path) -> Path:
    try:
        name = (root / "active_profile").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        name = ""
    return root / "profiles" / name if name not in ("", "default") else root
