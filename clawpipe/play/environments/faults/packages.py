"""The packages that faults are planted into: sdists of PyPI by version and digest, with their own tests."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from clawpipe.core.store.plain_digests import sha256_file
from clawpipe.errors import BusyError, ConfigError, DataError

_DOWNLOAD_SECONDS = 600.0


@dataclass(frozen=True)
class Package:
    """A package's source distribution.

    Attributes:
        sources: globs of the files that get faults.
        tests: globs of the files of its tests.
    """

    name: str
    version: str
    sha256: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def file(self) -> str:
        """The name of its archive."""
        return f"{self.name}-{self.version}.tar.gz"


# Pure Python, no requirements, tests that take a second or two and need nothing but pytest.
_KNOWN = (
    Package(
        "cachetools", "5.5.2", "1a661caa9175d26759571b2e19580f9d6393969e5dfca11fdb1f947a23e640d4",
        ("src/cachetools/*.py",), ("tests/test_*.py",),
    ),
    Package(
        "inflection", "0.5.1", "1a29730d366e996aaacffb2f1f1cb9593dc38e2ddd30c91250c6dde09ea9b417",
        ("inflection/__init__.py",), ("test_inflection.py",),
    ),
    Package(
        "parse", "1.20.2", "b41d604d16503c79d81af5165155c0b20f6c8d6c559efa66b4b695c3e5a0a0ce",
        ("parse.py",), ("tests/test_*.py",),
    ),
    Package(
        "sqlparse", "0.5.3", "09f67787f56a0b16ecdbde1bfc7f5d9c3371ca683cfeaa8e6ff60b4807ec9272",
        ("sqlparse/*.py", "sqlparse/*/*.py"), ("tests/test_*.py",),
    ),
    Package(
        "toolz", "1.0.0", "2c86e3d9a04798ac556793bced838816296a2f085017664e4995cb40a1047a02",
        ("toolz/*.py",), ("toolz/tests/test_*.py",),
    ),
)  # fmt: skip
PACKAGES = {package.name: package for package in _KNOWN}


@dataclass(frozen=True)
class Tree:
    """The files of a package, by path; `sources` and `tests` are some of these paths, in order."""

    name: str
    version: str
    files: dict[str, bytes] = field(repr=False)
    sources: tuple[str, ...]
    tests: tuple[str, ...]


def packages_named(names: Sequence[str]) -> list[Package]:
    """Return packages by name; all of them for no names.

    Raises:
        ConfigError: there is none of a name.
    """
    for name in names:
        if name not in PACKAGES:
            raise ConfigError(f"no package {name!r} to plant faults into", fix=f"there are {', '.join(PACKAGES)}")
    return [PACKAGES[name] for name in names or PACKAGES]


def sdist(package: Package, folder: Path) -> Path:
    """Return a package's archive in a folder, downloaded with pip where it is not there.

    Raises:
        BusyError: pip cannot get it.
        DataError: it has another digest than the one that is written here.
    """
    place = folder / package.file
    if not place.is_file():
        _download(package, folder)
    found = sha256_file(place) if place.is_file() else None
    if found != package.sha256:
        what = f"its sha256 is {found}" if found else "pip has saved it under another name"
        raise DataError(f"this is not the archive that is known: {what}", str(place), "remove it, and run the command again")
    return place


def tree_of(package: Package, archive: Path) -> Tree:
    """Return the files of a package's archive; metadata that pip has generated is left out."""
    files = dict[str, bytes]()
    with tarfile.open(archive) as opened:
        for member in opened:
            path = PurePosixPath(*PurePosixPath(member.name).parts[1:])
            if member.isfile() and ".." not in path.parts and not any(part.endswith(".egg-info") for part in path.parts):
                files[str(path)] = _content(opened, member)
    return tree(package.name, package.version, files, package.sources, package.tests)


def tree(name: str, version: str, files: dict[str, bytes], sources: Sequence[str], tests: Sequence[str]) -> Tree:
    """Return files as a package.

    Raises:
        DataError: no file is a source, or none a test.
    """
    found = [tuple(path for path in sorted(files) if _matches(path, globs)) for globs in (sources, tests)]
    if not all(found):
        raise DataError(f"the package has no {'tests' if found[0] else 'sources'}", name)
    return Tree(name, version, files, *found)


def _matches(path: str, globs: Sequence[str]) -> bool:
    """Whether a path has the form of a glob, folder by folder."""
    pure = PurePosixPath(path)
    return any(len(pure.parts) == len(PurePosixPath(one).parts) and pure.match(one) for one in globs)


def _content(opened: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = opened.extractfile(member)
    return file.read() if file else b""


def _download(package: Package, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch, "wanted.txt")
        wanted.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
        options = ["--no-deps", "--no-binary", ":all:", "--require-hashes", "--dest", str(folder), "--requirement", str(wanted)]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pip", "download", *options], capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise BusyError("pip takes too long", package.file, "try again, or put the archive into --sdists") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise BusyError(f"pip cannot get it: {(lines or ['no reason given'])[-1]}", package.file, "put the archive into --sdists")
