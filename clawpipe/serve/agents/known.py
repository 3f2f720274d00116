"""The agents that clawpipe can connect: the config lines of each, and the edit of its config file."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

from clawpipe.core.store.files import write_atomic
from clawpipe.errors import ConfigError
from clawpipe.serve.agents import hermes, openclaw
from clawpipe.serve.agents.connection import Connection

Edit = Callable[[str], str]  # of a config's text; raises ConfigError if the text is not understood


@dataclass(frozen=True)
class ConfigFile:
    """A config file of an agent.

    Args:
        find: returns its path for an environment; raises ConfigError if it is not to be written.
        edited: returns its text with a connection in it; raises ConfigError if the text is not understood.
    """

    find: Callable[[Mapping[str, str]], Path]
    edited: Callable[[str, Connection], str]


FILES = {
    "openclaw": ConfigFile(openclaw.config_file, openclaw.edited),
    "hermes": ConfigFile(hermes.config_file, hermes.edited),
}
_COMMANDS: dict[str, Callable[[Connection], str]] = {
    "monoclaw": lambda to: (
        f"monoclaw config set model.custom.endpoint {quote(to.url)}\nmonoclaw config set model.custom.name {quote(to.model)}\n"
    ),
    "openai": lambda to: f"export OPENAI_BASE_URL={quote(to.url)}\nexport OPENAI_API_KEY={quote(to.key)}\n",
}


@dataclass(frozen=True)
class Written:
    """A changed config file, and the backup of its former content; None if there was no file or nothing to change."""

    file: Path
    backup: Path | None
    changed: bool


def check_known(agent: str) -> None:
    """Raises ConfigError for a client that clawpipe connects with its tools alone."""
    if agent not in FILES and agent not in _COMMANDS:
        raise ConfigError("clawpipe connects this client with its tools alone", agent, f"clawpipe connect {agent} --training-tools")


def lines(agent: str, connection: Connection) -> str:
    """Return the lines that a person adds to the agent's config, or types in a shell."""
    return FILES[agent].edited("", connection) if agent in FILES else _COMMANDS[agent](connection)


def check_writable(agent: str) -> Path:
    """Return the config file of an agent.

    Raises:
        ConfigError: the agent has none that clawpipe writes, or it cannot be read or is not understood.
    """
    check_known(agent)
    if agent not in FILES:
        fix = f"type what `clawpipe connect {agent}` prints, without --write"
        raise ConfigError("clawpipe knows no config file of this agent", agent, fix)
    file = FILES[agent].find(os.environ)
    _edited(agent, file, _to(agent, Connection("http://127.0.0.1:1/v1", "model", "key")))
    return file


def write(agent: str, connection: Connection) -> Written:
    """Change the agent's config file, so that it asks a gateway; raises what `edit` raises."""
    return edit(agent, _to(agent, connection))


def _to(agent: str, connection: Connection) -> Edit:
    return lambda text: FILES[agent].edited(text, connection)


def edit(agent: str, change: Edit) -> Written:
    """Change the agent's config file, for its owner's eyes only. The old one is kept beside it.

    Raises:
        ConfigError: see `check_writable`.
    """
    file = FILES[agent].find(os.environ)
    old, new = _edited(agent, file, change)
    if old == new:
        return Written(file, None, changed=False)
    place = file.resolve()  # a link stays one
    backup = _copy(place) if old is not None else None
    write_atomic(place, new.encode(), mode=0o600)
    return Written(file, backup, changed=True)


def _edited(agent: str, file: Path, change: Edit) -> tuple[str | None, str]:
    """Return the text of the file, None if there is no file, and what it becomes."""
    try:
        old = file.read_bytes().decode()
    except FileNotFoundError:
        old = None
    except (OSError, UnicodeDecodeError) as error:
        fix = f"paste what `clawpipe connect {agent}` prints"
        raise ConfigError(f"cannot be read: {type(error).__name__}", str(file), fix) from None
    try:
        return old, change(old or "")
    except ConfigError as error:
        raise ConfigError(error.what, str(file), error.fix) from None


def _copy(file: Path) -> Path:
    backup = file.with_name(f"{file.name}.before-clawpipe-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
    shutil.copy2(file, backup)
    backup.chmod(stat.S_IMODE(file.stat().st_mode) & 0o600)
    return backup
