"""Run what a page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def section(page: str, title: str) -> str:
    """The one block of bash under a heading."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    part = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert part, title
    [block] = re.findall(r"```bash\n(.*?)```", part[1], re.DOTALL)
    return block


def shell(block: str, **variables: str) -> str:
    """Run a block to its end, with the environment's own programs first; return what it printed."""
    programs = f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"
    env = os.environ | {"PATH": programs} | variables
    done = subprocess.run(["bash", "-eu", "-c", block], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
