"""A night as a job of Slurm's, on a cluster of this machine: what its time limit would end, the same job starts again."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from clawpipe.core.services.service import running
from clawpipe.core.system.ports import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
SCRIPT = Path(__file__).parents[2] / "integrations" / "slurm" / "night.sbatch"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(
        not all(map(shutil.which, PROGRAMS)) or os.getuid() != 0,
        reason="needs Debian's slurmctld, slurmd, slurm-client and munge, and root",
    ),
]

CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
CredType=cred/munge
SlurmctldPort={control}
SlurmdPort={node}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
ReturnToService=2
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=1024 State=UNKNOWN
PartitionName=nights Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for Slurm's files. pytest's own may be too long for the socket of a job's step, of 107 characters at most: a node
    then leaves the job's files there, and its second start fails."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        yield Path(folder)


@pytest.fixture
def cluster(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A controller and a node of this machine, on ports of their own."""
    for name in ("state", "spool"):
        (place / name).mkdir()
    facts = {"place": place, "host": socket.gethostname(), "control": free_port(), "node": free_port(), "cpus": os.cpu_count()}
    (place / "slurm.conf").write_text(CONF.format(**facts))
    key = place / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    monkeypatch.setenv("SLURM_CONF", str(place / "slurm.conf"))
    munge = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={place}/munge.socket"]
    munge += [f"--{what}-file={place}/munge.{what}" for what in ("pid", "log", "seed")]
    with ExitStack() as stack:
        stack.enter_context(running("munged", munge, place / "munged.out", {}))
        until(lambda: (place / "munge.socket").exists())
        stack.enter_context(running("slurmctld", ["slurmctld", "-D"], place / "slurmctld.out", {}))
        stack.enter_context(running("slurmd", ["slurmd", "-D"], place / "slurmd.out", {}))
        until(lambda: "idle" in slurm("sinfo", "--noheader", check=False))
        yield place


def until(holds: Callable[[], bool], seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, slurm("scontrol", "show", "job") + slurm("sinfo")
        time.sleep(0.2)


def slurm(*words: str, check: bool = True) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=check).stdout


def facts_of(job: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\S*)", slurm("scontrol", "show", "job", job)))


def waits_again(job: str) -> bool:
    facts = facts_of(job)
    return (facts["JobState"], facts["Restarts"]) == ("PENDING", "1")


STUB = """#!{python}
import signal, sys
with open({log!r}, "a+") as log:
    print(*sys.argv[1:], file=log, flush=True)
    log.seek(0)
    if len(log.readlines()) >= {ends}:
        sys.exit({code})
signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
signal.pause()
"""


@pytest.fixture
def stub(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], Path]:
    """stub(ends, code): a program in place of `clawpipe`, which ends with a code at its so-manieth start, and else when told to."""

    def write(ends: int, code: int) -> Path:
        program, log = cluster / "bin" / "clawpipe", cluster / "started"
        program.parent.mkdir()
        program.write_text(STUB.format(python=sys.executable, log=str(log), ends=ends, code=code))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        return log

    return write


def test_what_the_time_limit_would_end_starts_again(cluster: Path, stub: Callable[[int, int], Path]):
    started = stub(2, 0)
    job = slurm("sbatch", "--parsable", "--time=2", f"--output={cluster}/job.log", str(SCRIPT), "--config", "night.yaml").strip()
    until(lambda: waits_again(job))
    # Two minutes later, which Slurm itself lets pass.
    until(lambda: facts_of(job)["JobState"] == "COMPLETED")
    assert started.read_text().splitlines() == ["run --config night.yaml"] * 2
