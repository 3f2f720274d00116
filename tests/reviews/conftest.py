"""A home with conversations that nobody has decided about yet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawpipe.core.store.home import Home
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest

ANSWERS = {  # by session: the question, the answer, and what the user said of it
    "praised": ("What is two plus two, please?", "Four.", "Thanks, perfect!"),
    "blamed": ("Name the capital of France for me.", "Lyon.", "That is wrong."),
    "silent": ("How many legs has a spider got?", "It has six of them.", ""),
}


def line(session: str, question: str, answer: str, reply: str) -> str:
    said = [("user", question), ("assistant", answer), *([("user", reply)] if reply else [])]
    return json.dumps({"id": session, "messages": [{"role": role, "content": content} for role, content in said]})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("CLAWPIPE_HOME", str(tmp_path / "home"))
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(line(name, *words) + "\n" for name, words in ANSWERS.items()))
    found = Home.from_env()
    ingest(found, [str(file)], Options())
    return found
