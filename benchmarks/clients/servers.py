"""What the clients are tried against, as processes of their own on loopback: `clawpipe serve`, and `clawpipe gateway` before the
scripted engine."""

from __future__ import annotations

import json
import secrets
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch

from clawpipe.core.services.service import running
from clawpipe.core.store.home import Home
from clawpipe.data.capture.records import Turn
from clawpipe.data.capture.segments import read_segment, segments, segments_dir
from clawpipe.model.policy.tiny import byte_model, byte_tokenizer

HERE = Path(__file__).parent
KEY = "sk-of-the-clients"
UPSTREAM_KEY = f"sk-{secrets.token_hex(32)}"  # LiteLLM's proxy refuses to start with none, or a weak one
MODEL = "agent"
SENTENCE = "Dry."
_SURE = 4.0  # length of a row of the output layer; a norm of 8 makes it 32 logits
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


def write_model(directory: Path) -> None:
    """Write a model that answers everything with `SENTENCE`: a token's logits depend on the token before it alone. What a grammar
    wants instead is drawn from what it allows."""
    model, tokenizer = byte_model(), byte_tokenizer()
    model.config.max_position_embeddings = CONTEXT
    ids = [*tokenizer(f"\n{SENTENCE}").input_ids, tokenizer.eos_token_id]
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):  # what layers add to a token
                weight.zero_()
        model.lm_head.weight.zero_()
        for before, after in pairwise(ids):
            model.lm_head.weight[after] = _SURE * torch.nn.functional.normalize(model.model.embed_tokens.weight[before], dim=0)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


@contextmanager
def served(place: Path) -> Iterator[Target]:
    """`clawpipe serve` with a model that says one sentence: grammars have to do everything else."""
    write_model(place / MODEL)
    words = ["serve", str(place / MODEL), "--tool-call-format", "hermes"]
    with _started("clawpipe serve", words, place) as port:
        yield Target("serve", f"http://127.0.0.1:{port}/v1", "sentence")


@contextmanager
def engine(place: Path) -> Iterator[str]:
    """The scripted engine. Yields its address."""
    port = free_port()
    with running("engine", [sys.executable, str(HERE / "engine.py"), str(port)], place / "engine.log", {}) as service:
        service.wait_healthy(f"http://127.0.0.1:{port}/v1/models", 60)
        yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def proxied(place: Path, program: Path, upstream: str) -> Iterator[str]:
    """LiteLLM's proxy before an engine. Yields its address."""
    port, config = free_port(), place / "litellm.yaml"
    to = {"model": f"hosted_vllm/{MODEL}", "api_base": upstream, "api_key": "none"}
    config.write_text(json.dumps({"model_list": [{"model_name": MODEL, "litellm_params": to}]}))
    command = [str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    with running("LiteLLM", command, place / "litellm.log", {"LITELLM_MASTER_KEY": UPSTREAM_KEY}) as service:
        service.wait_healthy(f"http://127.0.0.1:{port}/health/liveliness", 300)
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
    env = {"CLAWPIPE_HOME": str(home), "CLAWPIPE_API_KEY": KEY, "CLAWPIPE_UPSTREAM_KEY": UPSTREAM_KEY}
    with running(name, command, place / f"{home.name}.log", env) as service:
        service.wait_healthy(f"http://127.0.0.1:{port}/healthz", 180)
        yield port
