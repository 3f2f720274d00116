"""Another Python, which has a user's environment's own packages: is it one that can run it, and what is installed there?

Nothing of clawpipe has to be installed there: the modules that answer for an environment need the standard library alone, and are
imported from where this clawpipe lies (`bootstrap`), without what is installed beside it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import clawpipe
from clawpipe.core.store.plain_digests import sha256_plain
from clawpipe.errors import ConfigError

SETTING = "environment.python"
_LEAST = (3, 11)  # of which language clawpipe's modules are
_TO_ANSWER = 60.0  # seconds, on a busy machine
_FIX = "name the Python of the environment's own packages, e.g. ~/envs/mine/bin/python, or leave it out"
_KEPT_OUT = ("PYTHONPATH", "PYTHONHOME")  # they belong to the Python that runs clawpipe
_ASK = """
import json, sys
try:
    from importlib.metadata import distributions
    packages = sorted({(d.metadata["Name"] or "", d.version or "") for d in distributions()})
except ImportError:
    packages = []
print(json.dumps([list(sys.version_info[:3]), packages]))
"""
_BOOTSTRAP = """
import importlib.util, sys
place = {place!r}
spec = importlib.util.spec_from_file_location("clawpipe", place + "/__init__.py", submodule_search_locations=[place])
sys.modules["clawpipe"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["clawpipe"])
from {module} import main
main()
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python with its packages.

    Attributes:
        packages: name and version of each, sorted.
    """

    path: str
    version: tuple[int, int, int]
    packages: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """The digest of version and packages, wherever they lie."""
        return sha256_plain([self.version, self.packages])


@cache
def interpreter(python: str) -> Interpreter:
    """Return a Python, asked once in this process.

    Raises:
        ConfigError: there is no such program, it is no Python, or one that is too old.
    """
    path = shutil.which(Path(python).expanduser())
    if path is None:
        raise ConfigError(f"no such program: {python}", SETTING, _FIX)
    path = os.path.abspath(path)  # not resolved: a virtual environment's is a link, and is known by its place
    version, packages = _asked(path)
    if version[:2] < _LEAST:
        told, least = ".".join(map(str, version)), ".".join(map(str, _LEAST))
        raise ConfigError(f"{python} is Python {told}, and an environment needs {least} or newer", SETTING, f"make one of {least}")
    return Interpreter(path, version, tuple((name, release) for name, release in packages))


def _asked(path: str) -> tuple[tuple[int, int, int], list[list[str]]]:
    try:
        done = subprocess.run([path, "-c", _ASK], env=own_variables(), capture_output=True, timeout=_TO_ANSWER, check=True)
        version, packages = json.loads(done.stdout)
        return tuple(version), packages
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        raise ConfigError(f"this is no Python that starts: {path}", SETTING, _FIX) from None


def own_variables() -> dict[str, str]:
    """Return this process's environment variables for another Python, without those that would lead it to our packages."""
    return {name: value for name, value in os.environ.items() if name not in _KEPT_OUT}


def bootstrap(python: str | None, module: str) -> tuple[list[str], dict[str, str] | None]:
    """Return the command that runs `main` of one of clawpipe's modules in a Python, and its environment variables.

    Args:
        python: None: this one.
    """
    if python is None:
        return [sys.executable, "-m", module], None
    place = str(Path(clawpipe.__file__).parent)
    return [interpreter(python).path, "-c", _BOOTSTRAP.format(place=place, module=module)], own_variables()
