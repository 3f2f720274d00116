"""Start a run in a process of its own, which goes on when the process that started it ends."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import threading
from pathlib import Path

from clawpipe.core.store.home import Home
from clawpipe.record.runs.record import ProcessId, Run, new_id, write_record
from clawpipe.record.runs.recording import RUN_ID


def launch(home: Home, config: Path, night: str, model: str) -> Run:
    """Start `clawpipe run` with a config; return the run at once, in the state `starting`.

    What the process prints is in `output_of(home, run)`.

    Args:
        night, model: the night's id and the registered model's name, which the run's own process writes again once it has begun.
    """
    now = datetime.datetime.now(datetime.UTC)
    run = Run(id=new_id(now), night=night, model=model, config=str(config), started=now.isoformat(timespec="seconds"))
    output = output_of(home, run.id)
    output.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "clawpipe.cli.main", "run", "--config", str(config)]
    env = os.environ | {"CLAWPIPE_HOME": str(home.root), RUN_ID: run.id}
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=env, start_new_session=True)
    run.process = ProcessId.of(process.pid)
    write_record(home, run)
    threading.Thread(target=process.wait, daemon=True).start()  # or it would stay a zombie, which looks alive to others
    return run


def output_of(home: Home, run_id: str) -> Path:
    """Return the file of what a launched run has printed."""
    return home.root / "logs" / "runs" / f"{run_id}.log"
