"""Files that an agent left behind, and what became of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_ref, read_dataset
from clawpipe.core.store.home import Home
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import Ingested, ingest
from clawpipe.start.proposing.report import ingest_report

Row = dict[str, Any]


def chat(question: str, answer: str, **fields: Any) -> Row:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]} | fields


def batch_row(question: str, answer: str, completed: bool = True, **fields: Any) -> Row:
    spoken = [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]
    return {"conversations": spoken, "completed": completed, "partial": False} | fields


def turn(session: str, number: int, *said: str) -> Row:
    """Turn record of an alternating dialogue, whose last word is the response."""
    roles = ["user", "assistant"] * len(said)
    history = [{"role": role, "content": text} for role, text in zip(roles, said[:-1], strict=False)]
    return {"session_id": session, "turn": number, "messages": history, "response_text": said[-1]}


def judged(session: str, number: int, score: int) -> Row:
    return {"session_id": session, "turn": number, "score": score, "votes": [score]}


def group(*scores: float, **fields: Any) -> Row:
    """A scored group of sequences of five tokens, the last two of them sampled."""
    rows = {
        "tokens": [[7, 8, 9, 20 + index, 2] for index in range(len(scores))],
        "masks": [[-100, -100, -100, 20 + index, 2] for index in range(len(scores))],
        "inference_logprobs": [[1.0, 1.0, 1.0, -0.5, -0.25 * index] for index in range(len(scores))],
        "scores": list(scores),
        "messages": [chat("add", f"{index}")["messages"] for index in range(len(scores))],
    }
    return rows | fields


def lines(*rows: Row) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


class Desk:
    """A folder of files and a home to ingest them into."""

    def __init__(self, folder: Path, home: Home) -> None:
        self.folder, self.home, self.store = folder, home, Store(home.store)
        folder.mkdir()

    def write(self, name: str, data: bytes) -> Path:
        (self.folder / name).write_bytes(data)
        return self.folder / name

    def append(self, name: str, data: bytes) -> None:
        with (self.folder / name).open("ab") as file:
            file.write(data)

    def ingest(self, **options: Any) -> Ingested:
        return ingest(self.home, [str(self.folder)], Options(**options))

    def ingest_report(self, **options: Any) -> Row:
        return ingest_report(self.home, self.ingest(**options))

    def rows(self, done: Ingested, name: str = "trajectories") -> list[Row]:
        return read_dataset(self.store, done.datasets[name]).to_pylist() if name in done.datasets else []

    def stored(self, name: str = "trajectories") -> list[Row]:
        """Rows of all runs so far."""
        logs = [json.loads(path.read_bytes()) for path in sorted((self.home.root / "ingest").glob("*.json"))]
        digests = [digest for log in logs for digest in log["datasets"].get(name, [])]
        return [row for digest in digests for row in read_dataset(self.store, dataset_ref(self.store, name, digest)).to_pylist()]


@pytest.fixture
def desk(tmp_path: Path, home: Home) -> Desk:
    return Desk(tmp_path / "agent", home)


@pytest.fixture
def names() -> Callable[[Iterable[Row]], set[str]]:
    return lambda rows: {row["trajectory_id"] for row in rows}


class Make:
    """Records as their writers write them."""

    chat, batch_row, turn, judged, group, lines = map(staticmethod, (chat, batch_row, turn, judged, group, lines))


@pytest.fixture
def make() -> type[Make]:
    return Make
