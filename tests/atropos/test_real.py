"""Atropos from PyPI, in a Python of its own: its environments ask `clawpipe serve`, and run-api hands on what they have played."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from clawpipe.core.system.ports import free_port
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.version import base_ref

pytestmark = pytest.mark.foreign
WORLD = Path(__file__).parent / "worlds" / "letters.py"
KEY = "sk-a-test-key"
SECONDS = 240
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def atropos(tmp_path_factory) -> Path:
    """The folder of programs of a Python with atroposlib, whose tokenize_for_trainer needs transformers below 5, which needs older
    datasets."""
    place, packages = tmp_path_factory.mktemp("atropos"), ["atroposlib==0.4.0", "transformers<5", "datasets<5"]
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    subprocess.run([place / "bin" / "python", "-m", "pip", "install", "-q", *packages], check=True)
    return place / "bin"


@pytest.fixture(scope="session")
def base() -> Path:
    return resolve_base("random").path


@pytest.fixture(scope="session")
def tokenizer(base, tmp_path_factory) -> Path:
    """The base's tokenizer, as transformers 4 reads it, with a template."""
    place = tmp_path_factory.mktemp("tokenizer")
    for name in ("tokenizer.json", "config.json"):
        shutil.copy(base / name, place)
    settings = json.loads((base / "tokenizer_config.json").read_text())
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT}
    (place / "tokenizer_config.json").write_text(json.dumps(settings))
    return place


@contextmanager
def running(command: list, log: Path, url: str = "", **environment: str) -> Iterator[subprocess.Popen]:
    """Run a server until the end of the block, which begins when the URL answers."""
    with log.open("w") as stream:
        process = subprocess.Popen(list(map(str, command)), stdout=stream, stderr=stream, env=os.environ | environment)
        try:
            deadline = time.monotonic() + SECONDS
            while url and not _answers(url):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.5)
            yield process
        finally:
            process.terminate()
            process.wait(60)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="session")
def endpoint(base, tmp_path_factory) -> Iterator[str]:
    port, place = free_port(), tmp_path_factory.mktemp("serve")
    command = [sys.executable, "-m", "clawpipe", "serve", "random", "--port", port]
    home = {"CLAWPIPE_HOME": str(place / "home"), "CLAWPIPE_API_KEY": KEY}
    with running(command, place / "log", f"http://127.0.0.1:{port}/healthz", **home):
        yield f"http://127.0.0.1:{port}/v1"


@pytest.fixture
def play(atropos, endpoint, tokenizer):
    """play(mode, server type, **settings): the command of the environment."""

    def command(mode: str, server: str, **env: object) -> list[str]:
        fields = {"use_wandb": "false", "tokenizer_name": tokenizer, "managed": str(server != "openai").lower()} | env
        own = [word for name, value in fields.items() for word in (f"--env.{name}", str(value))]
        asked = {"base_url": endpoint, "model_name": "random", "api_key": KEY, "server_type": server, "tokenizer_name": tokenizer}
        return [str(atropos / "python"), str(WORLD), mode, *own, *(w for n, v in asked.items() for w in (f"--openai.{n}", str(v)))]

    return command


def clawpipe(home: Path, *words: object) -> str:
    command = [sys.executable, "-m", "clawpipe", *map(str, words)]
    return subprocess.run(
        command, env=os.environ | {"CLAWPIPE_HOME": str(home)}, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def version() -> str:
    return base_ref("random", resolve_base("random").digest, "pythonic", "float32").policy_version


def groups_of(*files: Path) -> list[dict]:
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


@pytest.mark.parametrize("server", ["openai", "sglang"])
def test_what_process_writes_comes_back_as_it_was(play, tmp_path, base, server):
    """Eight rows, with an HTML page beside them; without log-probs those of the named policy are computed, with them they stay."""
    folder = tmp_path / "played"
    folder.mkdir()
    settings = {"data_path_to_save_groups": folder / "groups.jsonl", "total_steps": 2, "group_size": 4}
    subprocess.run(play("process", server, **settings), check=True, capture_output=True, timeout=SECONDS)
    assert (folder / "groups.html").exists()
    given = groups_of(folder / "groups.jsonl")
    home = tmp_path / "home"
    named = ("--policy-version", version(), "--temperature", 1)
    report = json.loads(clawpipe(home, "ingest", folder, *named, "--json"))
    assert (report["trajectories"], report["with_tokens"], report["quarantined"]) == (8, 8, {})
    clawpipe(home, "export", "trajectories", "--format", "atropos", "--output", tmp_path / "back.jsonl")
    back = groups_of(tmp_path / "back.jsonl")
    assert by_tokens(back) == by_tokens(given)

    (tmp_path / "night.yaml").write_text("model: {base: random}\n")
    clawpipe(
        home,
        "export",
        "trajectories",
        "--format",
        "atropos",
        "--output",
        tmp_path / "full.jsonl",
        "--config",
        tmp_path / "night.yaml",
    )
    engine = EmbeddedEngine(base, None, device="cpu")
    for group in groups_of(tmp_path / "full.jsonl"):
        for ids, mask, logprobs in zip(group["tokens"], group["masks"], group["inference_logprobs"], strict=True):
            own = engine.score(ids, 1)
            sampled = [place for place, kept in enumerate(mask) if kept != -100]
            assert [logprobs[place] for place in sampled] == pytest.approx([own[place - 1] for place in sampled], abs=1e-3)


def by_tokens(groups: list[dict]) -> dict[str, dict]:
    return {str(group["tokens"]): {name: value for name, value in group.items() if value is not None} for group in groups}


def test_run_api_hands_on_what_an_environment_serves(atropos, play, tmp_path, base, monkeypatch):
    """The trainer is killed when it has one batch and asks for the next; the same command takes the rest, and nothing twice."""
    port, folder, home = free_port(), tmp_path / "batches", tmp_path / "home"
    url = f"http://127.0.0.1:{port}"
    take = [
        sys.executable,
        "-m",
        "clawpipe",
        "atropos",
        url,
        "--output",
        folder,
        "--batches",
        "3",
        "--batch-size",
        "8",
        "--max-length",
        "256",
    ]
    settings = {
        "rollout_server_url": url,
        "wandb_name": "letters",
        "group_size": 4,
        "include_messages": "true",
        "total_steps": 40,
        "max_token_length": 256,
    }
    with ExitStack() as stack:
        stack.enter_context(running([atropos / "run-api", "--host", "127.0.0.1", "--port", port], tmp_path / "api.log", url))
        stack.enter_context(running(play("serve", "sglang", **settings), tmp_path / "env.log"))
        killed = subprocess.run(
            list(map(str, take)),
            env=os.environ | {"CLAWPIPE_KILL_AT": "write_atomic.before_rename#2"},
            timeout=SECONDS,
            check=False,
        )
        assert killed.returncode == -9
        assert [path.name for path in sorted(folder.glob("batch*"))] == ["batch-000001.jsonl"]
        done = subprocess.run([*map(str, take), "--json"], capture_output=True, timeout=SECONDS, check=True)
    assert [(one["groups"], one["sequences"], one["silent"]) for one in json.loads(done.stdout)["batches"]] == [(2, 8, 0)] * 2
    groups = groups_of(*sorted(folder.glob("batch*.jsonl")))
    assert Counter(str(group["tokens"]) for group in groups).most_common(1)[0][1] == 1
    report = json.loads(clawpipe(home, "ingest", folder, "--policy-version", version(), "--logprobs", "tempered", "--json"))
    assert (report["trajectories"], report["with_tokens"], report["quarantined"]) == (24, 24, {})
    engine = EmbeddedEngine(base, None, device="cpu")
    for ids, mask, logprobs in ((group["tokens"][0], group["masks"][0], group["inference_logprobs"][0]) for group in groups):
        start = next(place for place, kept in enumerate(mask) if kept != -100)
        assert logprobs[start:] == pytest.approx(engine.score(ids, start), abs=1e-3)
    (tmp_path / "night.yaml").write_text(json.dumps(night(atropos / "python")))
    told = clawpipe(home, "run", "--config", tmp_path / "night.yaml")
    assert re.search(r"round-1/check_recorded +ran", told)
    assert re.search(r"^(PROMOTE|HOLD|REJECT)$", told, re.MULTILINE)


def night(python: Path) -> dict:
    """Settings of a night that learns from what was taken, with the environment itself as the judge of its candidate."""
    options = {"config": {"managed": False, "max_tokens": 4}, "reward": {"success": 0.5}}
    world = {"name": f"atropos:{WORLD}", "python": str(python), "options": options, "heldout_items": 20, "benchmark_items": 0}
    return {
        "night": "taken",
        "model": {"base": "random"},
        "rollouts": None,
        "rounds": 1,
        "trajectories": ["new"],
        "scores": ["new"],
        "environment": world,
        "train": {"method": "grpo", "optimizer_steps": 2, "lora": {"rank": 4, "alpha": 8}},
        "evaluation": {"temperature": 1.0},
        "runtime": {"workers": 1, "train_threads": 1},
    }
