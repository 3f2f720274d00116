"""A night ends within seconds of Ctrl-C and of the end of its server, whatever it is busy with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clawpipe.core.services.stack import project_directory
from clawpipe.core.store.home import Home

# The block says on stdout when it is under way, and which process its server is. Then it waits, or is `deaf` to interrupts, or
# `busy` in code that is not Python, where no handler runs.
SCRIPT = """
import hashlib, sys, time
from pathlib import Path
from clawpipe.cli import main
from clawpipe.cli.ending import end_early
from clawpipe.core.services.service import running
import typer

app = typer.Typer()

@app.command()
def go(how: str, server: bool, json_output: bool = typer.Option(False, "--json")) -> None:
    with running("server", [sys.executable, "-c", "import time; time.sleep(600)"], Path("log"), {}) as service:
        with end_early(lambda: "3 finished steps are kept", json_output) as ending:
            if server:
                ending.follow(service)
            print(service.process.pid, flush=True)
            while True:
                try:
                    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9) if how == "busy" else time.sleep(600)
                except KeyboardInterrupt:
                    if how != "deaf":
                        raise ValueError("a library made something else of it") from None

main.app = app
main.run()
"""


@contextmanager
def under_way(tmp_path: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command, pipe = [sys.executable, "-c", SCRIPT, *words], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path) as process:
        assert process.stdout
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


@pytest.mark.parametrize("how", ["waits", "deaf", "busy"])
def test_an_interrupt_ends_within_five_seconds(tmp_path: Path, how: str):
    with under_way(tmp_path, how, "True") as (process, _):
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
        seconds = time.monotonic() - begun
    assert process.returncode == 130
    assert stderr.splitlines() == ["clawpipe: interrupted", "  -> 3 finished steps are kept"]
    assert seconds < 5


@pytest.mark.parametrize("how", ["waits", "deaf", "busy"])
def test_a_night_notices_within_seconds_that_its_server_died(tmp_path: Path, how: str):
    with under_way(tmp_path, how, "True", "--json") as (process, server):
        begun = time.monotonic()
        os.kill(server, signal.SIGKILL)
        stdout, _ = process.communicate(timeout=60)
        seconds = time.monotonic() - begun
    told = json.loads(stdout)
    assert (process.returncode, told["error"], told["fix"]) == (75, "BusyError", "3 finished steps are kept")
    assert "server that the night started has ended" in told["what"]
    assert seconds < 6


def test_an_interrupt_does_not_wait_for_a_server_that_starts(home: Home):
    """It said nothing, and ended when the server was done with starting."""
    command = [sys.executable, "-m", "clawpipe", "run", "-c", str(project_directory() / "configs" / "tiny.yaml")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        while not process.stderr.readline().startswith("night tiny-"):
            assert process.poll() is None
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        seconds = time.monotonic() - begun
    assert process.returncode == 130
    assert "clawpipe: interrupted" in said.splitlines()[:2]  # what was begun may be told before
    assert f"0 finished steps, shards and checkpoints are kept in {home.root}" in said
    assert seconds < 5
