"""Modules are found by the names that they had in 0.2, which docs and users' files import."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from clawpipe import moved
from clawpipe.play.environments.source_classes import classes_of

OLD = """
from clawpipe.environments.base import Answer, Outcome
from clawpipe.environments.single_turn import Question, SingleTurn
from clawpipe.messages import Message
from clawpipe import errors


class Sums(SingleTurn):
    def questions(self, count):
        return [Question("1 + 1?", "2")]
"""


def old_names() -> list[str]:
    return sorted(moved._NEW)


@pytest.mark.parametrize("old", old_names())
def test_each_old_name_leads_to_a_module(old):
    new = moved.new_name(f"clawpipe.{old}")
    assert new is not None
    assert find_spec(new) is not None


def test_a_name_that_did_not_change_is_left_alone():
    assert moved.new_name("clawpipe.errors") is None
    assert moved.new_name("clawpipe.play.environments.base") is None
    assert moved.new_name("environments.base") is None


def test_the_old_name_is_the_same_module_and_warns():
    from clawpipe.play.environments import base

    spec = base.__spec__
    for name in ("clawpipe.environments", "clawpipe.environments.base"):
        sys.modules.pop(name, None)
    with pytest.warns(FutureWarning, match=r"clawpipe\.environments\.base is now clawpipe\.play\.environments\.base"):
        old = importlib.import_module("clawpipe.environments.base")
    assert old is base
    assert base.__spec__ is spec


def test_a_name_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError, match=r"clawpipe\.environments\.none"):
        importlib.import_module("clawpipe.environments.none")


def test_a_file_of_a_user_still_runs(tmp_path: Path):
    (tmp_path / "sums.py").write_text(OLD)
    asked = "import sums; print(sums.Sums.__mro__[1].__module__, sums.Message is not None)"
    ended = subprocess.run([sys.executable, "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["clawpipe.play.environments.single_turn", "True"]
    assert "the old name goes with clawpipe 0.4" in ended.stderr


def test_the_source_of_an_old_name_is_read(tmp_path: Path):
    """What a user's class inherits is known before anything is imported."""
    file = tmp_path / "sums.py"
    file.write_text(OLD)
    new = tmp_path / "new.py"
    new.write_text(OLD.replace("clawpipe.environments", "clawpipe.play.environments"))
    assert [known.members for known in classes_of(file)] == [known.members for known in classes_of(new)]
    assert "items" in classes_of(file)[0].members
