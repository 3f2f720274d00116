"""A program that plays episodes: how it is run, read from the options of its environment."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from clawpipe.errors import ConfigError
from clawpipe.play.environments.world import NOTHING, Needs, World
from clawpipe.play.sandbox.base import Limits
from clawpipe.play.sandbox.bubblewrap import is_seen
from clawpipe.play.sandbox.running import variables

WHERE = "environment.options"
TOKENS = 1 << 16
_SECONDS = 300.0
_LONGEST = 120_000  # bytes of what is told in a variable or an argument: the kernel takes 128 KiB as one


@dataclass(frozen=True)
class Program:
    """How a program is run.

    Attributes:
        command, check: argv, the latter of the program that judges; empty: there is none.
        variables: that it gets beside the usual ones.
        limits: of its sandbox; `seconds` are those of the whole run.
        tokens: that it may let the policy sample.
        world: whose tasks it does, in sandboxes of theirs that have what it `needs`; None: it has one to itself.
    """

    command: tuple[str, ...]
    check: tuple[str, ...] = ()
    sandbox: str = "bubblewrap"
    sandbox_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: Limits = field(default_factory=Limits)
    tokens: int = TOKENS
    world: World | None = None
    needs: Needs = NOTHING


def why_untold(text: str, what: str, who: str) -> str:
    """Return why a program cannot be told a text; "" if it can.

    Args:
        what: the text is.
        who: the program is.
    """
    if "\0" in text:
        return f"its {what} has a NUL, which no {who} can be given"
    if len(text.encode(errors="replace")) > _LONGEST:
        return f"its {what} has more than {_LONGEST} bytes, which no {who} can be given"
    return ""


def argv_of(given: Any, option: str) -> tuple[str, ...]:
    """Return a program and its arguments.

    Raises:
        ConfigError: it is no list of texts, its home is nobody's, or two of its files have one name.
    """
    where = f"{WHERE}.{option}"
    parts = given if isinstance(given, list | tuple) else ()
    if not parts or not all(isinstance(part, str) and part and "\0" not in part for part in parts):
        raise ConfigError("it is no list of a program and its arguments", where, 'write ["python3", "loop.py"]')
    if home_of(parts[0]) is None:
        raise ConfigError(f"{parts[0]!r} begins with the home of nobody here", where, "write the whole path")
    named = parts if "/" in parts[0] else parts[1:]
    files = {file.resolve(): file.name for file in map(named_file, named) if file and not is_seen(file, ())}
    for name, count in Counter(files.values()).items():
        if count > 1:
            what = f"{count} of its files are called {name}, and lie in one working folder"
            raise ConfigError(what, where, "give each a name of its own")
    return tuple(parts)


def require_program(argv: Sequence[str], option: str, paths: Sequence[str] | None, where: str) -> None:
    """Check that a program which is a file of this machine is there, and can run in a sandbox of bubblewrap.

    Args:
        paths: further folders of this machine in the sandbox; None: it is no sandbox of bubblewrap.
        where: these stand.

    Raises:
        ConfigError: a relative path leads to no file; or the sandbox does not have the program that runs it.
    """
    if not argv or "/" not in argv[0] or "{" in argv[0]:
        return
    file = named_file(argv[0])
    if file is None and not argv[0].startswith("/"):
        raise ConfigError(f"there is no file {argv[0]}", f"{WHERE}.{option}", f"write its whole path, or one from {Path.cwd()} on")
    needed = _not_inside(file, paths) if file and paths is not None else []
    if needed:
        listed = ", ".join(dict.fromkeys([*(paths or ()), *needed]))
        raise ConfigError(f"the sandbox does not have what runs {argv[0]}", f"{WHERE}.{option}", f"set {where}.paths: [{listed}]")


def _not_inside(program: Path, paths: Sequence[str]) -> list[str]:
    """Return the folders of this machine that a program needs and a sandbox does not have: those of what runs a script, and of a
    Python, which is more than its file."""
    runs = program if program.name.startswith("python") else interpreter_of(program)
    if runs is None or not runs.is_file():
        return []
    return [str(one.parent.parent) for one in (runs.absolute(), runs.resolve()) if not is_seen(one, paths)]


def interpreter_of(script: Path) -> Path | None:
    """Return the program that a script's first line names; None: it names none, or nobody can read it."""
    try:
        with script.open("rb") as file:
            first = file.readline(4096)
    except OSError:
        return None
    words = first[2:].decode(errors="replace").split(maxsplit=1) if first.startswith(b"#!") else []
    return Path(words[0]) if words else None


def home_of(path: str) -> Path | None:
    """Return a path, from `~` on too; None: it begins with the home of nobody."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return None


def named_file(part: str) -> Path | None:
    """Return the file of this machine that an argument of a command names; None: it names none."""
    try:
        file = Path(part).expanduser()
        return file if file.is_file() else None
    except (OSError, RuntimeError, ValueError):  # a long text
        return None


def variables_of(given: Any) -> dict[str, str]:
    """Return variables of an environment.

    Raises:
        ConfigError: they are no names of variables with texts.
    """
    where = f"{WHERE}.variables"
    if not isinstance(given, Mapping):
        raise ConfigError("it is no mapping of names to texts", where, "write {NAME: text}")
    if wrong := next((name for name, value in given.items() if not isinstance(value, str)), None):
        raise ConfigError(f"the value of {wrong} is no text", where, "put it in quotes")
    variables(given, where)
    return dict(given)


def limits_of(given: Any) -> Limits:
    """Return the limits of a program's sandbox.

    Raises:
        ConfigError: one is no limit, or no number above 0.
    """
    where, known = f"{WHERE}.limits", [limit.name for limit in fields(Limits)]
    if not isinstance(given, Mapping) or not given.keys() <= set(known):
        wrong = next((name for name in given if name not in known), given) if isinstance(given, Mapping) else given
        raise ConfigError(f"{wrong!r:.80} is no limit", where, f"limits are {', '.join(known)}")
    for name, value in given.items():
        require_above_0(value, f"{where}.{name}", (int, float) if name == "seconds" else (int,))
    chosen: dict[str, Any] = {"seconds": _SECONDS, **given}
    return Limits(**chosen)


def require_above_0(value: Any, where: str, kinds: tuple[type, ...] = (int,)) -> None:
    """Raise a ConfigError if a value is no number above 0."""
    if type(value) not in kinds or not 0 < value < math.inf:
        number = "whole number" if kinds == (int,) else "number"
        raise ConfigError(f"{value!r:.80} is no {number} above 0", where, "write one, such as 300")
