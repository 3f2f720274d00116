"""Digests of the sources of modules that hold environments: a user may edit them without changing a version."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

from clawpipe.core.store.plain_digests import sha256_once, sha256_plain
from clawpipe.errors import ConfigError
from clawpipe.play.environments.interpreter import interpreter, own_variables

_TO_ANSWER = 60.0  # seconds, on a busy machine
# `find_spec` of a top-level module imports nothing.
_FIND = """
import importlib.util, json, sys
try:
    found = importlib.util.find_spec(sys.argv[1])
except (ImportError, ValueError):
    found = None
print(json.dumps([(found and found.origin) or "", list((found and found.submodule_search_locations) or ())]))
"""


def module_digest(module: str, python: str | None) -> str:
    """Return the digest of a module's source: of all Python files of its package, and of what it imports that is no installed
    library's; "" where there is no such module, which whoever loads it will tell.

    Args:
        python: that imports it; None: this one.

    Raises:
        ConfigError: that Python does not start, or does not answer.
    """
    from clawpipe.core.store.source import file_digest  # which a user's Python need not have

    try:
        origin, folders = _place_of(module.partition(".")[0], python)
    except LookupError:
        return ""
    whole = sorted((str(file.relative_to(folder)), sha256_once(file)) for folder in folders for file in Path(folder).rglob("*.py"))
    own = file_digest(Path(origin)) if origin.endswith(".py") and Path(origin).is_file() else ""
    return sha256_plain([own, whole]) if own or whole else ""


@cache
def _place_of(module: str, python: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the file of a module, and its folders if it is a package.

    Raises:
        LookupError: there is none; which is asked again, since it may be installed meanwhile.
        ConfigError: it was not told in time: rollouts under a key without the source would be taken for those of another one.
    """
    program, variables = (interpreter(python).path, own_variables()) if python else (sys.executable, None)
    asked = [program, "-c", _FIND, module]
    try:
        done = subprocess.run(asked, env=variables, capture_output=True, timeout=_TO_ANSWER, check=True)
        origin, folders = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        what = f"{program} did not say within {_TO_ANSWER:.0f} seconds where the module {module!r} lies"
        raise ConfigError(what, "environment.name", "run it again when the machine is less busy") from None
    except (OSError, subprocess.SubprocessError, ValueError):
        origin, folders = "", []
    if not origin and not folders:
        raise LookupError(module)
    return origin, tuple(folders)
