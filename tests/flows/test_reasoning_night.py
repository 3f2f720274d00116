"""A night of reasoning-gym in a Python of its own, with a curriculum. A stand-in for it asks what a tiny model can learn."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_ref, read_dataset

pytestmark = [pytest.mark.slow, pytest.mark.long]

# The library's interface as far as it is used: one generator, whose curriculum lengthens what it asks for.
STAND_IN = {
    "__init__.py": """
import random
from reasoning_gym import factory

class Dataset:
    def __init__(self, seed=0, size=1, length=2): self.seed, self.length = seed, length
    def __getitem__(self, index):
        word = "".join(random.Random(self.seed).choices("abcdefgh", k=self.length))
        return {"question": f"Like {word}?", "answer": word, "metadata": {}}
    def score_answer(self, answer, entry): return sum(one in "abcdefghijklmnopqrstuvwxyz" for one in answer) / max(len(answer), 1)

def create_dataset(name, **config): return Dataset(**config)
""",
    "factory.py": """
DATASETS = {"letters": None}

class Config:
    def __init__(self, seed, size, length): self.seed, self.size, self.length = seed, size, length

class Curriculum:
    def set_global_level(self, level): self.level = level
    def generate_configuration(self, defaults, context): return Config(**defaults, length=4 + self.level)

def has_curriculum(name): return True
def create_curriculum(name): return Curriculum()
""",
    "coaching/base_curriculum.py": """
class RangeAttributeMode: UPPER_BOUND = "upper_bound"
class DefaultCurriculumContext:
    def __init__(self, mode): pass
""",
}
CURRICULUM = ("rollouts.difficulty.levels=true", "rollouts.difficulty.low=0", "rollouts.difficulty.high=0", "rollouts.items=8")


@pytest.fixture
def reasoning(tmp_path: Path) -> tuple[str, ...]:
    """The settings of the environment: any success in a round leads to the next of two levels."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    [packages] = (tmp_path / "bare").glob("lib/python*/site-packages")
    for name, source in STAND_IN.items():
        (packages / "reasoning_gym" / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / "reasoning_gym" / name).write_text(source)
    options: dict[str, Any] = {"levels": 2, "reward": {"success": 0.4}}
    place = f"environment.python={tmp_path}/bare/bin/python"
    return "environment.name=reasoning-gym:letters", place, f"environment.options={json.dumps(options)}", *CURRICULUM


def test_a_night_goes_up_a_level_and_comes_to_a_verdict(new_clawpipe, reasoning):
    clawpipe = new_clawpipe("reasoning")
    status = clawpipe.night(*reasoning)
    steps = {step["name"]: step for step in status["steps"]}
    assert [steps[f"round-{number}/draw_items"]["details"]["levels"] for number in (1, 2)] == [{"letters": 1}, {"letters": 2}]
    store = Store(clawpipe.home.store)
    asked = read_dataset(store, dataset_ref(store, "eval_results", steps["evaluate/candidate"]["digest"]), ["slice"])
    assert set(asked["slice"].to_pylist()) == {"letters/level-1", "letters/level-2"}  # whatever the rounds have reached
    assert status["verdict"]
