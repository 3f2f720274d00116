"""Task folders in Harbor's form: task.toml, instruction.md, environment/, tests/ and solution/, read as they are.

A folder that cannot be played here is set aside with its reason, and the others are played.
"""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clawpipe.core.store.plain_digests import sha256_once, sha256_plain
from clawpipe.core.user_code.extensions import in_one_line
from clawpipe.errors import ConfigError, DataError, NotFoundError
from clawpipe.play.environments.terminal.dockerfile import NotPlainError, Plain, read_dockerfile
from clawpipe.play.sandbox.base import own_folder
from clawpipe.play.sandbox.container import Image, Program, image_of

_MOST = 64 << 20  # bytes of a folder's files
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", re.IGNORECASE)  # such as 2G, of older tasks
_PYTEST = re.compile(r"^[^#\n]*\bpytest\b", re.MULTILINE)
_INSTALLS = re.compile(r"^[^#\n]*\b(apt-get|apt|apk|yum|dnf|curl|wget|pip3?|uvx?|npm|npx|git clone)\s+\S", re.MULTILINE)


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Verifier(_Part):
    timeout_sec: float = Field(default=600.0, gt=0)
    env: dict[str, str] = Field(default_factory=dict)


class _Environment(_Part):
    docker_image: str | None = None
    memory_mb: int | None = Field(default=None, gt=0)
    storage_mb: int | None = Field(default=None, gt=0)
    memory: str = ""
    storage: str = ""
    gpus: int = 0
    env: dict[str, str] = Field(default_factory=dict)
    os: str = "linux"


class _Toml(_Part):
    metadata: dict[str, Any] = Field(default_factory=dict)
    verifier: _Verifier = _Verifier()
    environment: _Environment = _Environment()
    steps: list[Any] = Field(default_factory=list)


@dataclass(frozen=True)
class TaskFolder:
    """A task folder that can be played.

    Attributes:
        part: its category.
        world: what its Dockerfile makes, for this machine's programs; or the image that its commands run in.
        own_variables: of its commands, beside those of its world.
        seconds: that its tests may take; `variables` are theirs.
        digest: of all its files, with their names, and of the image.
    """

    path: Path
    name: str
    instruction: str
    part: str
    world: Plain | Image
    own_variables: Mapping[str, str]
    seconds: float
    variables: Mapping[str, str]
    memory_mb: int | None
    storage_mb: int | None
    digest: str

    @property
    def plain(self) -> Plain | None:
        return self.world if isinstance(self.world, Plain) else None

    @property
    def image(self) -> Image | None:
        return self.world if isinstance(self.world, Image) else None

    @property
    def writable(self) -> list[str]:
        """The folders that have to be writable: those of the Dockerfile, or the one in which the image's programs start."""
        return self.world.tops if isinstance(self.world, Plain) else [self.world.folder] * bool(self.world.folder.strip("/"))

    @property
    def tests(self) -> dict[str, Path]:
        """The files of its tests, by paths such as tests/test.sh."""
        return {str(file.relative_to(self.path)): file for file in _files(self.path / "tests")}

    @property
    def asked(self) -> str:
        """The digest of what is asked: of its instruction, and of the files of its world and its tests. Copies share it."""
        parts = [place for part in ("environment", "tests") if (place := self.path / part).is_dir()]
        files = [file for place in parts for file in _files(place)]
        told = [[str(file.relative_to(self.path)), sha256_once(file)] for file in files]
        return sha256_plain([self.instruction, self.image.id if self.image else "", told])

    @property
    def has_script(self) -> bool:
        """Whether its tests are a script; otherwise pytest runs them."""
        return "tests/test.sh" in self.tests

    @property
    def solution(self) -> str | None:
        """The script that does the task; None where there is none, it needs files that the policy has not, or is no UTF-8."""
        files = _files(self.path / "solution") if (self.path / "solution").is_dir() else []
        with suppress(UnicodeDecodeError):
            return files[0].read_text(encoding="utf-8") if [file.name for file in files] == ["solve.sh"] else None
        return None


def read_task_folders(root: Path, program: Program = "podman") -> tuple[list[TaskFolder], dict[str, str]]:
    """Return the tasks of a folder of task folders, by name, and why the others are set aside.

    Args:
        program: that has the images.

    Raises:
        NotFoundError: there is no such folder.
        DataError: no task of it can be played.
    """
    if not root.is_dir():
        raise NotFoundError("there is no such folder of tasks", str(root), "set environment.options.folder")
    tasks, aside, names = list[TaskFolder](), dict[str, str](), dict[str, str]()
    for path in _task_paths(root):
        try:
            task = read_task_folder(path, program)
            if (first := names.setdefault(task.asked, task.name)) != task.name:  # it could stand on the other side of the split
                raise _aside(path, f"it asks the same as {first}")
            tasks.append(task)
        except (DataError, ConfigError) as error:
            aside[_named(path)] = error.what
        except OSError as error:  # a file of it may not be read
            aside[_named(path)] = in_one_line(error)
    if not tasks:
        reason = next((f"{name}: {why}" for name, why in aside.items()), "it holds no folder")
        raise DataError(f"no task of it can be played: {reason}", str(root), "see docs/terminal.md, task folders")
    return tasks, aside


def _task_paths(root: Path) -> list[Path]:
    if (root / "task.toml").is_file():
        return [root]
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith((".", "__")))


def read_task_folder(path: Path, program: Program) -> TaskFolder:
    """Read one task folder.

    Raises:
        DataError, ConfigError: it cannot be played here; `what` says why.
    """
    toml, instruction = _toml(path), _text(path, "instruction.md").strip()
    _require_playable(path, toml, instruction)
    world = _world(path, toml.environment, program)
    image = world.id if isinstance(world, Image) else ""
    name = toml.metadata.get("category") or toml.metadata.get("difficulty") or "tasks"
    told, given = [[str(file.relative_to(path)), sha256_once(file)] for file in _files(path)], toml.environment
    return TaskFolder(
        path, path.name, instruction, str(name), world, given.env, toml.verifier.timeout_sec, toml.verifier.env,
        given.memory_mb or _mebibytes(given.memory), given.storage_mb or _mebibytes(given.storage), sha256_plain([told, image]),
    )  # fmt: skip


def _mebibytes(size: str) -> int | None:
    found = _SIZE.fullmatch(size.strip())
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " ")) >> 20 or None if found else None


def _toml(path: Path) -> _Toml:
    text = _text(path, "task.toml")
    try:
        return _Toml.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise _aside(path, f"its task.toml is no TOML: {error}") from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise _aside(path, f"its task.toml: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _require_playable(path: Path, toml: _Toml, instruction: str) -> None:
    """Raise where a part is missing, or more is needed than a sandbox without a network."""
    tests = path / "tests"
    if not instruction:
        raise _aside(path, "its instruction.md is empty")
    if toml.steps:
        raise _aside(path, "it has several steps")
    if toml.environment.os.lower() != "linux":
        raise _aside(path, f"it needs {toml.environment.os}")
    if toml.environment.gpus:
        raise _aside(path, "it needs a GPU")
    for who, variables in (("its tests want", toml.verifier.env), ("it wants", toml.environment.env)):
        if wanted := [value for value in variables.values() if "${" in value]:
            raise _aside(path, f"{who} {wanted[0]} of this machine")
    if not tests.is_dir() or not ((tests / "test.sh").is_file() or list(tests.glob("test_*.py"))):
        raise _aside(path, "it has neither tests/test.sh nor tests/test_*.py")
    script = _script(path)
    if installs := _INSTALLS.search(script):
        raise _aside(path, f"its tests run {installs[1]}, and there is no network")
    if script and b"\r\n" in (tests / "test.sh").read_bytes():
        raise _aside(path, "its tests/test.sh has Windows' ends of lines, with which it does not start")
    if sum(file.stat().st_size for file in _files(path)) > _MOST:
        raise _aside(path, f"its files have more than {_MOST >> 20} MiB")


def _world(path: Path, environment: _Environment, program: Program) -> Plain | Image:
    """Return what its Dockerfile makes, or the image in which it is made already."""
    if environment.docker_image:
        return image_of(environment.docker_image, program)
    if any((path / "environment").glob("*compose*.y*ml")):
        raise _aside(path, "it needs several containers")
    if not (path / "environment" / "Dockerfile").is_file():
        raise _aside(path, "it has no environment/Dockerfile")
    try:
        plain = read_dockerfile(path / "environment" / "Dockerfile")
        for top in plain.tops:
            _require_own(top)
        if (not (script := _script(path)) or _PYTEST.search(script)) and not _has_pytest():
            raise NotPlainError("its tests need pytest for /usr/bin/python3 (apt-get install python3-pytest)")
    except NotPlainError as error:
        raise _aside(path, f"{error}: name an image of it in task.toml, environment.docker_image") from None
    except UnicodeDecodeError:
        raise _aside(path, "its Dockerfile is no text in UTF-8") from None
    return plain


def _require_own(top: str) -> None:
    try:
        own_folder(top)
    except ConfigError:
        raise NotPlainError(f"its Dockerfile writes into {top}, which is the system's here") from None


@cache
def _has_pytest() -> bool:
    python = Path("/usr/bin/python3")
    return (
        python.exists() and not subprocess.run([python, "-I", "-c", "import pytest"], capture_output=True, check=False).returncode
    )


def _script(path: Path) -> str:
    """Return the script of a task's tests; "" where pytest runs them."""
    return _text(path, "tests/test.sh") if (path / "tests" / "test.sh").is_file() else ""


def _text(path: Path, name: str) -> str:
    try:
        return (path / name).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise _aside(path, f"it has no {name}") from None
    except (OSError, UnicodeDecodeError):
        raise _aside(path, f"its {name} is no text in UTF-8") from None


def _files(path: Path) -> list[Path]:
    return sorted(_inner(path))


def _inner(path: Path) -> Iterator[Path]:
    """Yield the files below a folder; a link that leads out of it or to itself is refused, and a name that is no UTF-8."""
    for file in (path, *path.rglob("*")):
        if _named(file) != file.name:
            raise _aside(path, f"its {_named(file)} has a name that is no text in UTF-8")
        if file.is_symlink() and not _is_inside(file, path):
            raise _aside(path, f"its {file.relative_to(path)} leads out of it")
        if file.is_file():
            yield file


def _is_inside(link: Path, folder: Path) -> bool:
    try:
        return link.resolve().is_relative_to(folder.resolve())
    except RuntimeError:  # links that lead to each other
        return False


def _named(path: Path) -> str:
    """Return the name of a file, in which bytes that are no UTF-8 are escaped."""
    return os.fsencode(path.name).decode(errors="backslashreplace")


def _aside(path: Path, why: str) -> DataError:
    return DataError(why, str(path))
