"""What the clients are tried against, as processes of their own on loopback: `clawpipe serve`, and `clawpipe gateway` before the
scripted engine."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clawpipe.capture.records import Turn
from clawpipe.capture.segments import read_segment, segments, segments_dir
from clawpipe.policy.tiny import byte_model, byte_tokenizer
from clawpipe.services.service import running
from clawpipe.store.home import Home

HERE = Path(__file__).parent
KEY = "sk-of-the-clients"
MODEL = "agent"
CONTEXT = 262_144  # tokens; a byte is one, and the system prompts of agents are long


@dataclass(frozen=True)
class Target:
    """A server that is tried. `word` is what the tries are told of its engine, `home` where its turns are captured."""

    name: str
    url: str
    word: str
    home: Home | None = None

    def turns(self) -> list[Turn]:
        if self.home is None:
            return []
        records = [one.record for path in segments(segments_dir(self.home)) for one in read_segment(path)]
        return [record for record in records if isinstance(record, Turn)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def served(place: Path) -> Iterator[Target]:
    """`clawpipe serve` with random weights: free answers are noise, and grammars have to do everything else."""
    model = byte_model()
    model.config.max_position_embeddings = CONTEXT
    for one in (model, byte_tokenizer()):
        one.save_pretrained(place / MODEL)
    words = ["serve", str(place / MODEL), "--tool-call-format", "hermes"]
    with _started("clawpipe serve", words, place) as port:
        yield Target("serve", f"http://127.0.0.1:{port}/v1", "noise")


@contextmanager
def engine(place: Path) -> Iterator[str]:
    """The scripted engine. Yields its address."""
    port = free_port()
    with running("engine", [sys.executable, str(HERE / "engine.py"), str(port)], place / "engine.log", {}) as service:
        service.wait_healthy(f"http://127.0.0.1:{port}/v1/models", 60)
        yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def gatewayed(place: Path, upstream: str, name: str = "gateway") -> Iterator[Target]:
    """`clawpipe gateway` before an engine."""
    with _started(name, ["gateway", "--upstream", upstream], place) as port:
        yield Target(name, f"http://127.0.0.1:{port}/v1", "calls", Home(place / name.replace(" ", "-")))


@contextmanager
def _started(name: str, words: Sequence[str], place: Path) -> Iterator[int]:
    port, home = free_port(), place / name.replace(" ", "-")
    command = [sys.executable, "-m", "clawpipe", *words, "--port", str(port)]
    with running(name, command, place / f"{home.name}.log", {"CLAWPIPE_HOME": str(home), "CLAWPIPE_API_KEY": KEY}) as service:
        service.wait_healthy(f"http://127.0.0.1:{port}/healthz", 180)
        yield port
