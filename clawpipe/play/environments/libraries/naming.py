"""Names of other libraries' environments, such as `gymnasium:FrozenLake-v1`: the library, and what it calls them."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_CLASSES = {
    "atropos": "Atropos",
    "bfcl": "Bfcl",
    "gymnasium": "Gymnasium",
    "openenv": "OpenEnv",
    "reasoning-gym": "ReasoningGym",
    "skyrl-gym": "SkyRLGym",
    "verifiers": "Verifiers",
}
PACKAGES = {
    "atropos": "atroposlib",
    "bfcl": "bfcl-eval",
    "gymnasium": "gymnasium",
    "openenv": "openenv-core",
    "reasoning-gym": "reasoning-gym",
    "skyrl-gym": "skyrl-gym",
    "verifiers": "verifiers",
}
_ALONE = {"bfcl": "mpmath"}  # libraries whose dependencies are not what is played: installed without them, but for these
_MODULE_FIRST = {"gymnasium", "skyrl-gym"}  # libraries whose words may be `module:ID`
_MODULES = {"verifiers"}  # libraries whose words are names of packages
LIBRARIES = {library: f"{__package__}.{library.replace('-', '_')}:{member}" for library, member in _CLASSES.items()}
_LONGEST = 48  # characters that a label may have


def name_of(library: str, word: str) -> str:
    """Return the name that a library's environment gives itself, which may be a label: of a path or a URL, its last part."""
    last = word.rstrip("/").rpartition("/")[2].replace(".py", "")
    return re.sub("[^A-Za-z0-9._-]+", "-", f"{library}-{last}")[:_LONGEST].rstrip("-")


def file_in(word: str) -> Path | None:
    """Return the Python file that a name names, as FILE.py or FILE.py:Class; None where it names none."""
    found = re.fullmatch(r"(.+\.py)(?::\w+)?", word)
    return Path(found[1]).expanduser().resolve() if found else None


def module_in(library: str, word: str) -> str:
    """Return the module that a name has a library import, where the environment itself lies; "" where it names none."""
    if library in _MODULE_FIRST:
        return word.rpartition(":")[0]
    return word.rpartition("/")[2].partition("@")[0].replace("-", "_") if library in _MODULES else ""


def install_words(library: str) -> str:
    """Return what `pip install` takes to make a library's environments playable."""
    package = PACKAGES[library]
    return f"--no-deps {package} {_ALONE[library]}" if library in _ALONE else package


def installed_version(library: str) -> str:
    """Return the version of a library's package in this Python; "" where it is not installed."""
    try:
        return version(PACKAGES[library])
    except PackageNotFoundError:
        return ""
