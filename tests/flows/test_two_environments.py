"""A night of two environments: one of ours, and a user's in a Python of its own that has none of our packages."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_ref, read_dataset

pytestmark = [pytest.mark.slow, pytest.mark.long]

VOWELS = '''
import sys
from clawpipe.play.environments.base import Outcome, question_item
from clawpipe.core.conversation.messages import Message

class Vowels:
    """The share of vowels in one reply."""
    name, kind = "vowels", "chat"
    def tools(self): return []
    def preamble(self): return [Message("system", "Vowels.")]
    def items(self, split, count, seed):
        ids = [f"{split}-{seed}-{n}" for n in range(count)]
        return [question_item(self, split, n, identity=i, part="all", question=i, truth={}) for n, i in enumerate(ids)]
    def start(self, item): return Episode()
    def verify(self, item, messages):
        reply = messages[-1].content
        share = sum(letter in "aeiou" for letter in reply) / max(len(reply), 1)
        return Outcome(share, share > 0, "", {"python": sys.prefix})

class Episode:
    def respond(self, messages): return None
    def close(self): pass
'''


@pytest.fixture
def both(tmp_path: Path) -> tuple[str, ...]:
    """The settings that name both, three rollouts of the letters to one of the vowels."""
    (tmp_path / "vowels.py").write_text(VOWELS)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    own = {"name": f"{tmp_path}/vowels.py:Vowels", "weight": 1, "python": f"{tmp_path}/bare/bin/python"}
    return "environment.name=shop", f"environments={json.dumps([{'name': 'letters', 'weight': 3}, own])}"


def test_a_night_of_two_environments_survives_a_kill(new_clawpipe, both, tmp_path):
    clawpipe = new_clawpipe("two-environments")
    assert clawpipe.run(*both, kill_at="step.before_record/train").code == -signal.SIGKILL
    clawpipe.await_quiet()
    status = clawpipe.night(*both)
    steps = {step["name"]: step for step in status["steps"]}
    assert steps["round-1/score"]["state"] == "cached"

    def rows(step: str, name: str) -> list[dict]:
        store = Store(clawpipe.home.store)
        return read_dataset(store, dataset_ref(store, name, steps[step]["digest"])).to_pylist()

    played = Counter(row["environment"] for row in rows("round-1/validate", "trajectories"))
    assert played == {"letters": 96, "vowels": 32}
    asked = Counter(row["slice"] for row in rows("evaluate/candidate", "eval_results"))
    assert asked == {"letters/short": 23, "letters/long": 22, "vowels/all": 15}
    pythons = {json.loads(row["evidence"]).get("python") for row in rows("round-1/score", "scores")}
    assert pythons == {None, f"{tmp_path}/bare"}
