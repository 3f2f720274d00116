"""The agent of benchmarks/learns.py: what it looks up over HTTP is recorded, and its last reply is judged."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from clawpipe.core.basics.json_types import Row
from clawpipe.play.environments.agent import AgentEnvironment
from clawpipe.play.environments.base import Verdict
from clawpipe.play.environments.ending import messages_of
from clawpipe.play.environments.terminal.families import FIRST, SECOND
from tests.environments.swe.conftest import needs_bubblewrap  # noqa: F401  (a fixture)
from tests.programs.conftest import Play, scripted

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))


def test_what_an_agent_looks_up_in_the_shop_is_judged(play: Play, tmp_path: Path):
    from learns_shop import shop, write_tasks  # pyright: ignore[reportMissingImports]

    files = write_tasks(tmp_path)
    command = ["python3", str(BENCHMARKS / "learns_loop.py"), files["shown"]]
    [item] = AgentEnvironment(command, tasks=files["tasks"], sandbox="unsafe_local").items("train", 1, 0)
    wanted = json.loads(item.truth)["answer"]
    shown = json.loads(Path(files["shown"]).read_text())["messages"]
    before = [message["content"] for message in shown if message["role"] == "assistant"]  # the script counts them
    with shop() as url:
        settings = {"tasks": files["tasks"], "variables": {"SHOP_URL": url}, "max_new_tokens": 40}
        [right] = play(command, engine=scripted(*before, "calc(expression='6 * 7')", wanted), **settings)
        [wrong] = play(command, engine=scripted(*before, "calc(expression='6 +')", "The answer is 7 of 9."), **settings)
    environment = AgentEnvironment(command, tasks=files["tasks"], sandbox="unsafe_local")
    judged = [environment.verify(item, messages_of(row), Verdict(json.loads(row["verdict"]))).success for row in (right, wrong)]
    assert ([row["error"] for row in (right, wrong)], judged) == ([None, None], [True, False])
    assert [_result(row) for row in (right, wrong)] == ["42", "error: not an expression"]


@pytest.mark.usefixtures("needs_bubblewrap")
def test_mini_swe_agents_tasks_lie_on_both_sides_none_is_shown(tmp_path: Path):
    from learns_mini import FAMILIES, HERE, options  # pyright: ignore[reportMissingImports]

    environment = AgentEnvironment(**options(tmp_path))
    sides = [environment.items(split, 64, 0) for split in ("train", "heldout")]
    assert [{item.slice for item in items} for items in sides] == [set(FAMILIES)] * 2
    agent = yaml.safe_load((HERE / "learns_mini_agent.yaml").read_text())
    shown = " ".join(turn["content"] for turn in agent["model"]["shown"])
    subjects = {json.loads(item.truth)["number"] // len(SECOND) for items in sides for item in items}
    assert not [FIRST[number] for number in subjects if f"{FIRST[number]}-" in shown]


def _result(row: Row) -> str:
    return [message["content"] for message in row["messages"] if message["role"] == "tool"][-1]
