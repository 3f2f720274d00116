"""Where the files of a repository come from: a bundle of git, a repository in a folder, or a folder for one task."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from clawpipe.core.store.plain_digests import sha256_bytes
from clawpipe.errors import ConfigError, DataError
from clawpipe.play.environments.swe.tasks import Task

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")
_ALL_FILES = "* -export-ignore -export-subst\n"  # an archive is the commit's files as they are


class Sources:
    """The repositories of tasks, found by name below a folder: `owner__name` or `name`, or for one task alone its `instance_id`.

    Each may be a bundle (`NAME.bundle`) or a repository (`NAME`, `NAME.git`); what is named after a task may also be a folder of
    files without git, which are taken as they are.

    Attributes:
        folder: where they lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._copies: dict[Path, Path] = {}

    def why_not(self, task: Task) -> str:
        """Return why there are no files for a task; "" if there are."""
        place = self._place(task)
        if place is None:
            return f"no repository {_name(task.repo)} or {task.instance_id} in {self.folder}"
        if not _has_git(place):
            return ""
        try:
            copy = self._copy(place)
        except DataError as error:
            return f"{place.name}: {error.what}"
        commit = task.base_commit or "HEAD"
        known = commit == "HEAD" or _COMMIT.fullmatch(commit)
        found = known and _git(copy, "cat-file", "-e", f"{commit}^{{commit}}").returncode == 0
        return "" if found else f"{place.name} has no commit {commit[:12]}"

    def state(self, task: Task) -> str:
        """Return what names the files of a task: a commit, or the digest of files without git; "" where there are none."""
        place = self._place(task)
        if task.base_commit and (place is None or _has_git(place)):
            return task.base_commit
        if place is None:
            return ""
        if not _has_git(place):
            return sha256_bytes(_archive_of(place))
        return _output(_git(self._copy(place), "rev-parse", "HEAD"), place).decode().strip()

    def archive(self, task: Task) -> bytes:
        """Return the files of a task as a tar archive.

        Raises:
            DataError: they cannot be read.
        """
        place = self._place(task)
        if place is None:
            raise DataError(self.why_not(task), task.instance_id)
        if not _has_git(place):
            return _archive_of(place)
        made = _git(self._copy(place), "archive", "--format=tar", task.base_commit or "HEAD")
        return _output(made, place)

    def _place(self, task: Task) -> Path | None:
        return next((place for name in _names(task) for place in self._named(name)), None)

    def _named(self, name: str) -> Iterator[Path]:
        for place in (self.folder / f"{name}{suffix}" for suffix in ("", ".git", ".bundle")):
            if place.is_dir() or (place.suffix == ".bundle" and place.is_file()):
                yield place

    def _copy(self, place: Path) -> Path:
        """Return a bare repository of our own: no setting of the original's is followed, and its objects are not copied.

        Raises:
            DataError: it is no repository.
        """
        if place not in self._copies:
            copy = Path(tempfile.mkdtemp(prefix="clawpipe-swe-"))
            weakref.finalize(self, shutil.rmtree, copy, ignore_errors=True)
            shared = ["--shared"] if place.is_dir() else []
            command = [_program(), "clone", "--quiet", "--bare", *shared, "--", str(place.absolute()), str(copy)]
            _output(subprocess.run(command, capture_output=True), place)
            (copy / "info").mkdir(exist_ok=True)
            (copy / "info" / "attributes").write_text(_ALL_FILES)
            self._copies[place] = copy
        return self._copies[place]


def _names(task: Task) -> Iterator[str]:
    """Yield names of files that may hold a task's repository; what would lead out of the folder is none."""
    for name in (task.instance_id, _name(task.repo), task.repo.rpartition("/")[2]):
        if _PLAIN_NAME.fullmatch(name) and name not in (".", ".."):
            yield name


def _name(repo: str) -> str:
    return repo.replace("/", "__")


def _has_git(place: Path) -> bool:
    return place.is_file() or (place / ".git").exists() or (place / "HEAD").is_file()


def _archive_of(folder: Path) -> bytes:
    flags = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]
    return _output(subprocess.run(["tar", *flags, "-C", str(folder), "-cf", "-", "."], capture_output=True), folder)


def _git(repository: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([_program(), f"--git-dir={repository}", *arguments], capture_output=True)


@cache
def _program() -> str:
    if found := shutil.which("git"):
        return found
    raise ConfigError("no program 'git' on this machine", "environment swe", "install it: apt-get install git")


def _output(done: subprocess.CompletedProcess[bytes], place: Path) -> bytes:
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise DataError(f"it cannot be read: {(lines or ['no reason given'])[-1]}", str(place), "is it a repository of git?")
    return done.stdout
