"""Does every fault give one line with a remedy and its documented exit code? Causes each fault and prints the output.

    python benchmarks/faults.py [--json] [NAME ...]

Claims: the exit codes below; one line says what is wrong and one what helps; no traceback, no "please report it"; an
interrupted night and one whose server was killed end within 5 s. Needs no root; with it a disk is really filled.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.services.prefect_server import server
from clawpipe.core.services.secret import home_secret
from clawpipe.core.store.home import Home
from clawpipe.core.system.ports import free_port

PROJECT = Path(__file__).parents[1]
TINY = (
    "-c",
    str(PROJECT / "configs" / "tiny.yaml"),
    "-o",
    "rounds=1",
    "-o",
    "train.optimizer_steps=2",
    "-o",
    "environment.heldout_items=50",
)
SECONDS = 5.0
SLOW = 600.0
ENVIRONMENT = """from clawpipe.play.environments.letters import LettersEnvironment


class Mine(LettersEnvironment):
    name = "mine"

    def {method}(self, *arguments):
        return {{}}["nothing there"]
"""


@dataclass
class Fault:
    """A command and its result."""

    name: str
    expected: int
    command: str = ""
    code: int = -1
    line: str = ""
    remedy: str = ""
    seconds: float = 0.0
    traceback: bool = False
    wrong: list[str] = field(default_factory=list)

    def judge(self, silent: bool, within: float | None) -> None:
        if self.code != self.expected:
            self.wrong.append(f"ended with {self.code}, not {self.expected}")
        if self.traceback or "please report it" in self.remedy:
            self.wrong.append("reported as a mistake of the program")
        if not silent and not (self.line and self.remedy):
            self.wrong.append("without a line, or without a remedy")
        if within and self.seconds > within:
            self.wrong.append(f"took {self.seconds:.1f} s, more than {within:g}")


@dataclass
class Workshop:
    """A home with one finished night, and a server shared by all faults that are not about servers."""

    root: Path
    api: str
    secret: str  # secret of that server

    @property
    def home(self) -> Path:
        return self.root / "home"

    def env(self, **changes: str | None) -> dict[str, str]:
        ours = {"CLAWPIPE_HOME": str(self.home), "PREFECT_API_URL": self.api, "PREFECT_API_AUTH_STRING": self.secret}
        ours |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)}
        cache = {"CLAWPIPE_MODEL_CACHE": os.environ.get("CLAWPIPE_MODEL_CACHE", str(self.root / "models"))}
        wanted = os.environ | ours | cache | changes
        return {name: value for name, value in wanted.items() if value is not None}

    def start(self, words: tuple[str, ...], file_bytes: int | None = None, **env: str | None) -> subprocess.Popen:
        def before() -> None:
            if file_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

        command, pipe = [sys.executable, "-m", "clawpipe", *words], subprocess.PIPE
        return subprocess.Popen(
            command, env=self.env(**env), cwd=self.root, stdout=pipe, stderr=pipe, text=True, errors="replace", preexec_fn=before
        )

    def clawpipe(self, fault: Fault, *words: str, silent: bool = False, **how: Any) -> Fault:
        """Run a command to its end."""
        begun = time.monotonic()
        with self.start(words, **how) as process:
            stdout, stderr = process.communicate(timeout=SLOW)
        return self.record(fault, words, process.returncode, stdout, stderr, time.monotonic() - begun, silent)

    def record(
        self, fault: Fault, words: tuple[str, ...], code: int, stdout: str, stderr: str, seconds: float, silent=False, within=None
    ) -> Fault:
        lines = (stderr + stdout).splitlines()
        fault.command, fault.code, fault.seconds = self.short(f"clawpipe {' '.join(words)}"), code, round(seconds, 1)
        at = next((number for number, text in enumerate(lines) if text.startswith(("clawpipe: ", "fail "))), None)
        if at is not None:
            fault.line = self.short(lines[at])
            fault.remedy = self.short(next((text.strip() for text in lines[at + 1 : at + 3] if "->" in text), ""))
        fault.traceback = any(text.startswith("Traceback") for text in lines)
        fault.judge(silent, within)
        return fault

    def short(self, text: str) -> str:
        """Return the text without directories of this machine."""
        return text.replace(f"{PROJECT}/", "").replace(str(self.root), "")

    def night(self) -> Path:
        """Return the directory of the finished night."""
        return next(path.parent for path in (self.home / "runs").glob("tiny-*/night.json"))

    def with_damaged_history(self) -> Path:
        """Return a home whose Prefect database is damaged."""
        home = self.root / "damaged"
        (home / "prefect").mkdir(parents=True, exist_ok=True)
        (home / "prefect" / "prefect.db").write_bytes(b"no database" * 1000)
        return home

    def under_way(self, fault: Fault, disturb: Callable[[subprocess.Popen], None], home: Path, last_words: str) -> Fault:
        """Run a night on a private server beside a busy process, and disturb it after it has printed `last_words`."""
        words = ("run", *TINY, "-o", f"night={home.name}")
        with _busy(), self.start(words, PREFECT_API_URL=None, CLAWPIPE_HOME=str(home)) as process:
            assert process.stderr
            output = ""
            while last_words not in output:
                line = process.stderr.readline()
                assert line, output
                output += line
            begun = time.monotonic()
            disturb(process)
            stdout, stderr = process.communicate(timeout=SLOW)
            seconds = time.monotonic() - begun
        return self.record(fault, words, process.returncode, stdout, stderr, seconds, within=SECONDS)


def nothing_to_learn(shop: Workshop) -> Fault:
    file = shop.root / "chats.jsonl"
    output = [[{"role": "user", "content": f"day {day}?"}, {"role": "assistant", "content": f"day {day}."}] for day in range(20)]
    file.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in output))
    with shop.start(("ingest", str(file), "--json")) as ingest:
        digest = json.loads(ingest.communicate(timeout=SLOW)[0])["dataset"]["digest"]
    chosen = ("-o", "rollouts=null", "-o", "train.method=sft", "-o", f"trajectories=[{digest}]", "-o", "night=unjudged")
    return shop.clawpipe(Fault("nothing-to-learn", 65), "run", *TINY, *chosen)


def syntax_error(shop: Workshop) -> Fault:
    (shop.root / "broken.py").write_text("x = 1\nclass Mine(:\n")
    return shop.clawpipe(Fault("syntax-error", 2), "plan", *TINY, "-o", "environment.name=broken.py:Mine")


def verify_raises(shop: Workshop) -> Fault:
    (shop.root / "verify.py").write_text(ENVIRONMENT.format(method="verify"))
    words = ("run", *TINY, "-o", "environment.name=verify.py:Mine", "-o", "night=verify")
    return shop.clawpipe(Fault("verify-raises", 65), *words)


def items_raise(shop: Workshop) -> Fault:
    (shop.root / "items.py").write_text(ENVIRONMENT.format(method="items"))
    return shop.clawpipe(Fault("items-raise", 2), "run", *TINY, "-o", "environment.name=items.py:Mine", "-o", "night=items")


def unknown_setting(shop: Workshop) -> Fault:
    return shop.clawpipe(Fault("unknown-setting", 2), "plan", *TINY, "-o", "train.methd=sft")


def contradiction(shop: Workshop) -> Fault:
    return shop.clawpipe(Fault("contradiction", 2), "plan", *TINY, "-o", "train.loss.icepop=[2.0, 0.5]")


def idle_modules(shop: Workshop) -> Fault:
    return shop.clawpipe(Fault("idle-modules", 2), "plan", *TINY, "-o", "train.lora.target_modules=[c_attn]")


def disk_full(shop: Workshop) -> Fault:
    with _disk(shop.root / "full", "size=400k") as mounted:
        limit = None if mounted else 20_000  # without a mounted disk, a limit on file sizes stands for a full disk
        home = str(shop.root / "full" / "home")
        return shop.clawpipe(Fault("disk-full", 75), "run", *TINY, "-o", "night=full", CLAWPIPE_HOME=home, file_bytes=limit)


def read_only_home(shop: Workshop) -> Fault:
    with _disk(shop.root / "read-only", "ro") as mounted:
        home = shop.root / "read-only"
        if not mounted:
            home.chmod(0o555)
        return shop.clawpipe(Fault("read-only-home", 2), "run", *TINY, CLAWPIPE_HOME=str(home))


@contextmanager
def _disk(place: Path, options: str) -> Iterator[bool]:
    """Mount a separate disk at `place`; False where mounting is not allowed."""
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, check=False)
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", place], check=True)


def no_home(shop: Workshop) -> Fault:
    return shop.clawpipe(Fault("no-home", 0), "run", *TINY, silent=True, HOME=None)


def foreign_encoding(shop: Workshop) -> Fault:
    how: JsonObject = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"}
    return shop.clawpipe(Fault("foreign-encoding", 0), "status", silent=True, **how)


def label_without_an_encoding(shop: Workshop) -> Fault:
    """Put the label into the settings file, which is UTF-8 in every environment."""
    file = shop.root / "label.yaml"
    file.write_text((PROJECT / "configs" / "tiny.yaml").read_text().replace("night: tiny", "night: tête"))
    how: JsonObject = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    return shop.clawpipe(Fault("label-without-an-encoding", 2), "run", "-c", str(file), **how)


def folder_in_a_night(shop: Workshop) -> Fault:
    (shop.night() / ".ipynb_checkpoints").mkdir()
    return shop.clawpipe(Fault("folder-in-a-night", 0), "run", *TINY, silent=True)


def damaged_old_status(shop: Workshop) -> Fault:
    shutil.copytree(shop.night(), shop.home / "runs" / "an-old-night")
    (shop.home / "runs" / "an-old-night" / "status.json").write_text("{")
    os.utime(shop.home / "runs" / "an-old-night", (0, 0))
    return shop.clawpipe(Fault("damaged-old-status", 0), "status")


def damaged_status(shop: Workshop) -> Fault:
    return shop.clawpipe(Fault("damaged-status", 65), "status", "--night", "an-old-night")


def server_away(shop: Workshop) -> Fault:
    return shop.clawpipe(Fault("server-away", 75), "run", *TINY, PREFECT_API_URL=f"http://127.0.0.1:{free_port()}/api")


def damaged_history(shop: Workshop) -> Fault:
    home = shop.with_damaged_history()
    return shop.clawpipe(Fault("damaged-history", 65), "run", *TINY, PREFECT_API_URL=None, CLAWPIPE_HOME=str(home))


def doctor_on_damaged_history(shop: Workshop) -> Fault:
    return shop.clawpipe(
        Fault("doctor-on-damaged-history", 2), "doctor", PREFECT_API_URL=None, CLAWPIPE_HOME=str(shop.with_damaged_history())
    )


@contextmanager
def _busy() -> Iterator[None]:
    """Run another process that computes all the time."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def _interrupted(shop: Workshop, name: str, last_words: str) -> Fault:
    """Interrupt one night, each time later than before, so that it must have resumed every time."""
    return shop.under_way(Fault(name, 130), lambda night: night.send_signal(signal.SIGINT), shop.root / "interrupted", last_words)


def interrupted_at_the_servers_start(shop: Workshop) -> Fault:
    return _interrupted(shop, "interrupted-at-the-servers-start", "night ")


def interrupted(shop: Workshop) -> Fault:
    return _interrupted(shop, "interrupted", "check_model")


def interrupted_in_rollouts(shop: Workshop) -> Fault:
    return _interrupted(shop, "interrupted-in-rollouts", "draw_heldout")


def interrupted_in_training(shop: Workshop) -> Fault:
    return _interrupted(shop, "interrupted-in-training", "round-1/curate")


def interrupted_in_evaluation(shop: Workshop) -> Fault:
    return _interrupted(shop, "interrupted-in-evaluation", "record_look")


def own_server_killed(shop: Workshop) -> Fault:
    home = shop.root / "own-server"

    def kill(_: subprocess.Popen) -> None:
        mark = f"PREFECT_HOME={home}/prefect\0".encode()
        for process in Path("/proc").glob("[0-9]*"):
            command = _read(process / "cmdline").split(b"\0")
            if mark in _read(process / "environ") and b"flows.apps:prefect" in command and b"-S" not in command:
                os.kill(int(process.name), signal.SIGKILL)

    return shop.under_way(Fault("own-server-killed", 75), kill, home, "check_model")


def plan_is_silent(shop: Workshop) -> Fault:
    return shop.clawpipe(Fault("plan-is-silent", 0), "plan", *TINY, silent=True, PREFECT_API_URL=None, DO_NOT_TRACK=None, CI=None)


FAULTS = (
    *(nothing_to_learn, syntax_error, verify_raises, items_raise, unknown_setting, contradiction, idle_modules, disk_full),
    *(read_only_home, no_home, foreign_encoding, label_without_an_encoding, folder_in_a_night, damaged_old_status),
    *(damaged_status, server_away),
    *(damaged_history, doctor_on_damaged_history, interrupted_at_the_servers_start, interrupted, interrupted_in_rollouts),
    *(interrupted_in_training, interrupted_in_evaluation, own_server_killed, plan_is_silent),
)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def faults(names: list[str]) -> Iterator[Fault]:
    """Yield each fault in `names`, or all faults, one after the other."""
    wanted = [fault for fault in FAULTS if not names or fault.__name__.replace("_", "-") in names]
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        root.chmod(0o755)
        _, api = stack.enter_context(server(Home(root / "server"), free_port()))
        shop = Workshop(root, api, home_secret(Home(root / "server")))
        with shop.start(("run", *TINY)) as night:
            output = night.communicate(timeout=SLOW)
        assert night.returncode == 0, output
        for fault in wanted:
            yield fault(shop)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="faults to make; all of them unless given")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen, found = parser.parse_args(), []
    for fault in faults(chosen.names):
        found.append(fault)
        if not chosen.json:
            outcome = f"[{fault.name}: {fault.code}, {fault.seconds} s] {'; '.join(fault.wrong) or 'well'}"
            print(f"$ {fault.command}\n{fault.line}\n  {fault.remedy}\n{outcome}\n", flush=True)
    wrong = sum(bool(fault.wrong) for fault in found)
    if chosen.json:
        conditions = {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "root": os.geteuid() == 0,
        }
        print(json.dumps({"conditions": conditions, "faults": [asdict(fault) for fault in found], "wrong": wrong}, indent=2))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
