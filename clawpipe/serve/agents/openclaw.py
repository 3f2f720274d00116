"""Edit OpenClaw's openclaw.json: add a provider `clawpipe`, whose requests name their session, and select its model; or add a
server of tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.errors import ConfigError
from clawpipe.serve.agents.connection import Connection

_PROVIDER = "clawpipe"
_WINDOW, _ANSWER = 32768, 8192  # tokens of the window and of an answer, where the engine does not say
_PASTE = "paste what `clawpipe connect openclaw` prints, without --write"


def config_file(environment: Mapping[str, str]) -> Path:
    """Return the file that OpenClaw would read.

    $OPENCLAW_CONFIG_PATH, else openclaw.json in $OPENCLAW_STATE_DIR, else in .openclaw (or the .clawdbot of old) below
    $OPENCLAW_HOME or the home; from OpenClaw's config/paths.ts (2026.9.6).

    Raises:
        ConfigError: Nix writes OpenClaw's config, or a profile is chosen, whose place only OpenClaw knows.
    """
    settings = {name: value.strip() for name, value in environment.items() if value.strip() not in ("", "undefined", "null")}
    if settings.get("OPENCLAW_NIX_MODE") == "1":
        raise ConfigError(
            "Nix writes this config", "OPENCLAW_NIX_MODE", "put what `clawpipe connect openclaw` prints into its source"
        )
    home = Path(settings.get("OPENCLAW_HOME") or settings.get("HOME") or Path.home()).expanduser()
    if path := settings.get("OPENCLAW_CONFIG_PATH"):
        return _below(path, home)
    if state := settings.get("OPENCLAW_STATE_DIR"):
        return _first([_below(state, home)])
    if settings.get("OPENCLAW_PROFILE", "default") != "default":
        fix = "set OPENCLAW_CONFIG_PATH to the profile's openclaw.json; `openclaw config file` prints its path"
        raise ConfigError("a profile has a config of its own", "OPENCLAW_PROFILE", fix)
    return _first([home / ".openclaw", home / ".clawdbot"])


def edited(text: str, connection: Connection) -> str:
    """Return the config with the provider in it and its model chosen. All else stays as it is.

    Raises:
        ConfigError: it is not plain JSON (OpenClaw also reads JSON5, whose comments would be lost), or a block that has to change
            has another form or lies in another file.
    """
    config = _parsed(text)
    _block(_block(config, "models"), "providers")[_PROVIDER] = _provider(connection)
    defaults = _block(_block(config, "agents"), "defaults")
    primary = f"{_PROVIDER}/{connection.model}"
    if isinstance(defaults.get("model"), dict):
        _block(defaults, "model")["primary"] = primary
    else:
        defaults["model"] = {"primary": primary}
    return _dumped(config)


def with_server(text: str, name: str, server: JsonObject) -> str:
    """Return the config with an MCP server in it; raises the errors of `edited`."""
    config = _parsed(text)
    _block(_block(config, "mcp"), "servers")[name] = server
    return _dumped(config)


def _parsed(text: str) -> JsonObject:
    try:
        config = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        raise ConfigError("not plain JSON; comments and the like would be lost", fix=_PASTE) from None
    if not isinstance(config, dict):
        raise ConfigError("not an object", fix=_PASTE)
    return config


def _dumped(config: JsonObject) -> str:
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def _provider(connection: Connection) -> JsonObject:
    window = connection.context or _WINDOW
    model = {
        "id": connection.model,
        "name": connection.model,
        "reasoning": False,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": window,
        "maxTokens": min(_ANSWER, window // 2),
        "compat": {"sendSessionAffinityHeaders": True},
    }
    return {"baseUrl": connection.url, "apiKey": connection.key, "api": "openai-completions", "models": [model]}


def _block(parent: JsonObject, name: str) -> JsonObject:
    """Return an object inside another one, made if it is not there."""
    found = parent.setdefault(name, {})
    if not isinstance(found, dict) or "$include" in found:
        raise ConfigError(f"{name}: {'includes another file' if isinstance(found, dict) else 'not an object'}", fix=_PASTE)
    return found


def _below(path: str, home: Path) -> Path:
    """Return a path from an environment variable, with a leading tilde replaced by OpenClaw's home."""
    return (home / path[2:] if path.startswith("~/") else Path(path)).absolute()


def _first(folders: list[Path]) -> Path:
    folder = next((folder for folder in folders if folder.exists()), folders[0])
    names = ("openclaw.json", "clawdbot.json")
    return next((folder / name for name in names if (folder / name).exists()), folder / names[0])
