"""The tools that look at a home and its data. Each is a command of clawpipe's with --json, in a process of its own.

What cannot be undone is only proposed: the tool says what would happen, and gives the command that a person types.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.files import write_atomic
from clawpipe.errors import BusyError, ClawpipeError, ConfigError
from clawpipe.record.registry.names import version_name
from clawpipe.start.mcp.desk import Desk
from clawpipe.start.mcp.protocol import RefusedError
from clawpipe.start.mcp.training import Nothing

_SECONDS = 600.0
_LONGEST = 20  # entries of a list that are shown: a model pays for each


def _plain(text: str) -> str:
    if not text or text.startswith("-") or not text.isprintable():
        raise ValueError("it is empty, begins with a dash, or holds characters that cannot be printed")
    return text


Plain = Annotated[str, AfterValidator(_plain)]  # no option of a command line
Reference = Annotated[Plain, AfterValidator(version_name)]


class DataFile(BaseModel):
    """A tool about a file of trajectories."""

    model_config = ConfigDict(extra="forbid")

    file: Plain = Field(description="File or folder below this server's data directory, as a relative path.")


class Version(BaseModel):
    """A tool about a registered version."""

    model_config = ConfigDict(extra="forbid")

    version: Reference = Field(description="A registered version, such as my-model@champion or my-model@3.")


class Promotion(Version):
    """A version to put in service."""

    reason: Plain = Field(max_length=500, description="Why it should be in service although the gate held it.")


class Subject(BaseModel):
    """Whose data is meant: a session or a user."""

    model_config = ConfigDict(extra="forbid")

    session: Plain | None = Field(default=None, description="A session's id.")
    user: Plain | None = Field(default=None, description="A user's id.")


def inspect(desk: Desk, asked: DataFile) -> JsonObject:
    """Show what a file of trajectories holds."""
    return _answer(desk, "inspect", str(_file(desk, asked.file)))


def ingest(desk: Desk, asked: DataFile) -> JsonObject:
    """Read a file of trajectories into the home."""
    return _answer(desk, "ingest", str(_file(desk, asked.file)))


def plan(desk: Desk, _: Nothing) -> JsonObject:
    """Say what the training to come would do, and what it needs."""
    path = desk.root / "plan.json"  # YAML, too
    write_atomic(path, json.dumps(desk.settings().model_dump(mode="json")).encode())
    return _answer(desk, "plan", "--config", str(path))


def sessions(desk: Desk, _: Nothing) -> JsonObject:
    """List the captured sessions."""
    return _answer(desk, "sessions", "list")


def trace(desk: Desk, asked: Version) -> JsonObject:
    """Follow a version back to the data that trained it."""
    return _answer(desk, "trace", asked.version)


def promote(desk: Desk, asked: Promotion) -> JsonObject:
    """Propose to put a version in service; a person does it."""
    found = _answer(desk, "trace", asked.version)
    return _proposed(["promote", asked.version, "--reason", asked.reason], found)


def forget(desk: Desk, asked: Subject) -> JsonObject:
    """Say what forgetting would remove; a person does it."""
    words = [part for name, value in asked.model_dump().items() if value for part in (f"--{name}", value)]
    if not words:
        raise ConfigError("nothing is named", "session, user", "name one of them")
    found = _answer(desk, "forget", *words, "--dry-run")
    return _proposed(["forget", *words], found)


def _proposed(words: list[str], found: JsonObject) -> JsonObject:
    message = "nothing has changed: this needs a person, who confirms it with the command"
    return {"message": message, "command": shlex.join(["clawpipe", *words]), "found": found}


def _file(desk: Desk, name: str) -> Path:
    """Return a file below the data directory; links and `..` do not lead out of it."""
    if desk.data is None:
        raise ConfigError("this server reads no files", "file", "start it with --data DIRECTORY")
    root, path = desk.data.resolve(), (desk.data / name).resolve()
    if not path.is_relative_to(root):
        raise ConfigError("the path leads out of the data directory", "file", "name a file below it, as a relative path")
    if not path.exists():
        raise RefusedError(ConfigError(f"no such file: {name}", "file"), available=sorted(one.name for one in root.iterdir())[:50])
    return path


def _answer(desk: Desk, *words: str) -> JsonObject:
    """Run a command; return what it printed as JSON.

    Raises:
        RefusedError: it failed, with what it said.
    """
    command = [sys.executable, "-m", "clawpipe.cli.main", *words, "--json"]
    env = os.environ | {"CLAWPIPE_HOME": str(desk.home.root)}
    try:
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise RefusedError(BusyError(f"`clawpipe {words[0]}` did not end within {_SECONDS:.0f} s", words[0])) from None
    try:
        found: JsonObject = json.loads(done.stdout)
    except ValueError:
        what = f"`clawpipe {words[0]}` ended with {done.returncode} and printed no JSON"
        raise RefusedError(ClawpipeError(what, words[0])) from None
    if done.returncode and "what" in found:
        raise RefusedError(ConfigError(str(found["what"]), str(found.get("where", "")), str(found.get("fix", ""))))
    return _shortened(found)


def _shortened(value: Any) -> Any:
    """Return a JSON value with the first entries of each long list, and how many there are more."""
    if isinstance(value, dict):
        return {name: _shortened(inner) for name, inner in value.items()}
    if not isinstance(value, list):
        return value
    more = [f"and {len(value) - _LONGEST} more"] if len(value) > _LONGEST else []
    return [*map(_shortened, value[:_LONGEST]), *more]
