"""Draw the verdict of a night as its command prints it: `python docs/record.py docs/images/demo.svg clawpipe demo`.

The command's standard output is a terminal of 80 columns, of which the SVG shows the lines from the held-out figures to the model.
Run for a night that is done, it takes seconds.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

COLUMNS = 80
FIRST, LAST = "Held-out", "model "  # how the lines begin


def printed_by(command: list[str]) -> str:
    """What the command writes to a terminal, colours included.

    Raises:
        CalledProcessError: it failed.
    """
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 100, COLUMNS, 0, 0))
    with subprocess.Popen(command, stdout=its, env=os.environ | {"TERM": "xterm-256color"}) as process:
        os.close(its)
        chunks = []
        while chunk := _read(ours):
            chunks.append(chunk)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return b"".join(chunks).decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    """The next bytes; none once the last process has closed the terminal, which Linux reports as an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def verdict(printed: str) -> Text:
    """The lines of the summary that are drawn."""
    lines = Text.from_ansi(printed).split("\n")
    first, last = (next(place for place, line in enumerate(lines) if line.plain.startswith(begin)) for begin in (FIRST, LAST))
    return Text("\n").join(lines[first : last + 1])


def drawn(command: list[str], shown: Text) -> str:
    """An SVG that loads nothing from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text.assemble(("$ ", "dim"), (shlex.join(command), "bold"), ("\n...\n", "dim")))
    console.print(shown)
    picture = console.export_svg(title="clawpipe", theme=DIMMED_MONOKAI, unique_id="demo")
    return re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.DOTALL).replace("Fira Code, monospace", "ui-monospace, monospace")


if __name__ == "__main__":
    target, command = Path(sys.argv[1]), sys.argv[2:]
    target.write_text(drawn(command, verdict(printed_by(command))), encoding="utf-8")
