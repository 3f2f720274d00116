"""The agent of benchmarks/learns.py: what it looks up over HTTP is recorded, and its last reply is judged."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from clawpipe.core.basics.json_types import Row
from clawpipe.play.environments.agent import AgentEnvironment
from clawpipe.play.environments.base import Verdict
from clawpipe.play.environments.ending import messages_of
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


def _result(row: Row) -> str:
    return [message["content"] for message in row["messages"] if message["role"] == "tool"][-1]
