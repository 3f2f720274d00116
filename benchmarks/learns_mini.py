"""mini-swe-agent for benchmarks/learns.py: an environment that has it, and how a night starts it in a sandbox."""

from __future__ import annotations

import subprocess
from pathlib import Path

from clawpipe.core.basics.json_types import JsonObject

VERSION = "2.4.6"
HERE = Path(__file__).parent
FAMILIES = ("write-word", "rename", "copy", "make-folder")  # of the environment `terminal`, thousands of tasks each
PYTHON = "/usr/bin/python3"  # which a sandbox of bubblewrap has


def packages(folder: Path) -> Path:
    """Return where the packages of an environment lie; one that is not there is made, and gets mini-swe-agent."""
    if not (folder / "bin" / "mini").exists():
        subprocess.run([PYTHON, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", f"mini-swe-agent=={VERSION}"], check=True)
    return next((folder / "lib").glob("python*/site-packages")).resolve()


def options(site: Path) -> JsonObject:
    """Return the options of the environment `agent` by which mini-swe-agent does tasks of `terminal`.

    Args:
        site: where its packages lie.
    """
    files = [str(HERE / name) for name in ("learns_mini_run.py", "learns_mini_agent.yaml")]
    told = ["-y", "--exit-immediately", "-t", "{prompt}", "-m", "{model}", "-o", "/tmp/made.json"]
    quiet = {"MSWEA_CONFIGURED": "true", "MSWEA_SILENT_STARTUP": "1"}
    place: JsonObject = {"families": list(FAMILIES), "sandbox_options": {"paths": [str(site)]}}
    return {
        "command": [PYTHON, files[0], "-c", files[1], *told],
        "variables": quiet | {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"},
        "version": f"mini-swe-agent {VERSION}",
        "world": {"name": "terminal", "options": place},
    }
