"""Read a Dockerfile that only copies: then a sandbox with this machine's programs can stand for its image, and nothing is built."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from clawpipe.play.sandbox.base import WORK

_BASE = re.compile(r"(?:.*/)?(debian|ubuntu|python|bash|buildpack-deps)(?![a-z])")  # this machine's /usr stands for these
_IGNORED = {"CMD", "ENTRYPOINT", "EXPOSE", "LABEL", "MAINTAINER", "STOPSIGNAL", "USER", "SHELL", "HEALTHCHECK"}
_GIVEN = {WORK, "/tmp"}
_DEFAULT = "/app"  # where tasks start that name no folder
_PATHS = re.compile(r"mkdir(?: -p)?((?: /[A-Za-z0-9._/-]+)+)")


class NotPlainError(Exception):
    """The Dockerfile does more than a sandbox can do without its image."""


@dataclass
class Plain:
    """What a plain Dockerfile makes.

    Attributes:
        folder: in which commands start.
        variables: of programs.
        files: files here, by their absolute paths in the sandbox.
        folders: that are made, by their absolute paths.
    """

    folder: str = _DEFAULT
    variables: dict[str, str] = field(default_factory=dict[str, str])
    files: dict[str, Path] = field(default_factory=dict[str, Path])
    folders: list[str] = field(default_factory=lambda: [_DEFAULT])

    @property
    def tops(self) -> list[str]:
        """The first folders of all paths: they have to be writable, and are no sandbox's own."""
        return sorted({f"/{PurePosixPath(path).parts[1]}" for path in (*self.files, *self.folders)} - _GIVEN)


def read_dockerfile(file: Path) -> Plain:
    """Return what a Dockerfile makes, whose context is the folder that it lies in.

    Raises:
        NotPlainError: it runs something, builds on what is not here, or copies what cannot be copied.
    """
    made = Plain()
    handlers: dict[str, Callable[[str], None]] = {
        "FROM": lambda rest: _from(rest),
        "WORKDIR": lambda rest: _workdir(made, rest),
        "ENV": lambda rest: _env(made, rest),
        "COPY": lambda rest: _copy(made, file.parent, rest),
        "ADD": lambda rest: _copy(made, file.parent, rest),
        "RUN": lambda rest: _run(made, rest),
    }
    seen = set[str]()
    for name, rest in _instructions(file.read_text(encoding="utf-8-sig")):
        if (name not in handlers and name not in _IGNORED) or (name == "FROM" and "FROM" in seen):
            raise NotPlainError(f"its Dockerfile has {'a second ' * (name in seen)}{name}")
        seen.add(name)
        if name in handlers:
            handlers[name](rest)
    if "FROM" not in seen:
        raise NotPlainError("its Dockerfile has no FROM")
    return made


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), " ".join(rest.split())


def _from(rest: str) -> None:
    words = [word for word in rest.split() if not word.startswith("--")]
    if not words or not _BASE.match(words[0]):
        raise NotPlainError(f"its Dockerfile builds on {words[0] if words else 'nothing'}")
    if "/python" in f"/{words[0]}" and not Path("/usr/bin/python3").exists():
        raise NotPlainError("it needs /usr/bin/python3, which this machine has not")


def _workdir(made: Plain, rest: str) -> None:
    made.folder = _inside(made, rest.strip("\"'"))
    made.folders.append(made.folder)


def _env(made: Plain, rest: str) -> None:
    words = _words(rest)
    pairs = [word.partition("=") for word in words] if "=" in words[0] else [(words[0], "=", " ".join(words[1:]))]
    made.variables |= {name: value for name, _, value in pairs}


def _run(made: Plain, rest: str) -> None:
    if not (paths := _PATHS.fullmatch(rest)):
        raise NotPlainError(f"its Dockerfile runs {rest[:60]!r}")
    made.folders += [_inside(made, path) for path in paths[1].split()]


def _copy(made: Plain, context: Path, rest: str) -> None:
    words = _words(rest)
    flags, words = [word for word in words if word.startswith("--")], [word for word in words if not word.startswith("--")]
    if any(flag.startswith("--from") for flag in flags) or len(words) < 2 or any("<<" in word or ":/" in word for word in words):
        raise NotPlainError(f"its Dockerfile copies {rest[:60]!r}")
    if (context / ".dockerignore").is_file():
        raise NotPlainError("its .dockerignore says what is not copied")
    *sources, target = words
    found = [path for source in sources for path in _sources(context, source)]
    into = target.endswith(("/", "/.")) or target == "." or len(found) > 1
    place = _inside(made, target)
    for source in found:
        _add(made, source, place, into)


def _add(made: Plain, source: Path, place: str, into: bool) -> None:
    if source.is_dir():  # its content is copied, not the folder itself
        inner = sorted(folder for folder in source.rglob("*") if folder.is_dir())
        made.folders += [place, *(str(PurePosixPath(place, folder.relative_to(source))) for folder in inner)]
        made.files |= {
            str(PurePosixPath(place, file.relative_to(source))): file for file in sorted(source.rglob("*")) if file.is_file()
        }
    else:
        made.files[str(PurePosixPath(place, source.name)) if into else place] = source


def _sources(context: Path, source: str) -> list[Path]:
    relative = source.lstrip("/")
    found = [context] if relative in (".", "./", "") else sorted(context.glob(relative))
    if not found or any(not path.resolve().is_relative_to(context.resolve()) for path in found):
        raise NotPlainError(f"its Dockerfile copies {source}, which is not in environment/")
    return found


def _inside(made: Plain, path: str) -> str:
    """Return the absolute form of a path in the sandbox."""
    whole = PurePosixPath(made.folder, path)
    if ".." in whole.parts or "$" in path or len(whole.parts) < 2:
        raise NotPlainError(f"its Dockerfile names the place {path}")
    return str(whole)


def _words(rest: str) -> list[str]:
    if "$" in rest:
        raise NotPlainError(f"its Dockerfile has a variable in {rest[:60]!r}")
    try:
        words = list(map(str, json.loads(rest))) if rest.startswith("[") else shlex.split(rest)
    except ValueError:
        words = []
    if not words:
        raise NotPlainError(f"its Dockerfile cannot be read at {rest[:60]!r}")
    return words
