"""The libraries themselves, from PyPI, each in a Python of its own: rewards are those of the library's own evaluation."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from clawpipe.core.basics.json_types import JsonObject, Options
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.core.system.ports import free_port
from clawpipe.errors import ConfigError
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.ending import outcome_of
from clawpipe.play.environments.hosted import open_environment
from clawpipe.play.environments.play import Play

pytestmark = pytest.mark.foreign
ITEMS = 50
HERE = Path(__file__).parent / "worlds"
WANTED = {
    "gymnasium": ["gymnasium==1.4.0"],
    "skyrl-gym": ["skyrl-gym==0.4.0"],
    "reasoning-gym": ["reasoning-gym==0.1.25"],
    "atropos": ["atroposlib==0.4.0"],
    "verifiers": ["verifiers==0.4.0"],
    "openenv": ["openenv-core==0.3.0"],
    "bfcl": ["--no-deps", "bfcl-eval==2026.3.23", "mpmath==1.3.0"],
}


@pytest.fixture(scope="session")
def python_of(tmp_path_factory) -> Callable[[str], str]:
    """python_of(library): a Python that has it, installed once."""
    place = tmp_path_factory.mktemp("libraries")

    def install(library: str) -> str:
        python = place / library / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", place / library], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q", *WANTED[library]], check=True)
        return str(python)

    return install


def played(name: str, options: Options, python: str, reply: Callable[[TaskItem, int], str], turns: int = 8) -> list[JsonObject]:
    """Play items; return of each its truth, what was replied, and the reward."""
    with open_environment(name, options, 60.0, python) as environment:
        return [_of_item(environment, item, reply, turns) for item in environment.items("train", ITEMS, 0)]


def _of_item(environment: Any, item: TaskItem, reply: Callable[[TaskItem, int], str], turns: int) -> JsonObject:
    play, messages = Play(environment, item, 0), list(item.messages)
    said: list[str] = []
    while not play.over and len(said) < turns:
        said.append(reply(item, len(said)))
        messages.append(Message("assistant", said[-1]))
        answer = play.answer(messages)
        messages += answer.messages
        if answer.done:
            play.end("done")
    play.end("max_turns")
    outcome = outcome_of(environment, item, messages, play.ending)
    return {
        "truth": json.loads(item.truth),
        "said": said,
        "reward": outcome.evidence["reward"],
        "question": item.messages[-1].content,
    }


def evaluated(python: str, source: str, rows: Sequence[JsonObject]) -> list[float]:
    """Return the rewards that a script of the library's own calls prints for the rows."""
    done = subprocess.run(
        [python, "-W", "ignore", "-c", source], input=json.dumps(rows), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def require_equal(python: str, source: str, rows: Sequence[JsonObject]) -> None:
    own = [row["reward"] for row in rows]
    assert len(own) == ITEMS
    assert own == pytest.approx(evaluated(python, source, rows))
    assert len({round(reward, 6) for reward in own}) > 1  # else equal rewards would say little


OF_GYMNASIUM = """
import json, sys, gymnasium
rewards = []
for row in json.load(sys.stdin):
    world = gymnasium.make("Blackjack-v1")
    world.reset(seed=row["truth"]["seed"])
    rewards.append(float(sum(world.step(int(said))[1] for said in row["said"])))
print(json.dumps(rewards))
"""


def test_gymnasium(python_of):
    python = python_of("gymnasium")
    rows = played("gymnasium:Blackjack-v1", {"reward": {"lowest": -1}}, python, lambda item, turn: "1" if turn == 0 else "0")
    require_equal(python, OF_GYMNASIUM, rows)


OF_SKYRL = """
import json, sys, skyrl_gym
rewards = []
for row in json.load(sys.stdin):
    world = skyrl_gym.make("gsm8k_multi_turn", env_config={}, extras=row["truth"])
    world.init(row["truth"]["prompt"])
    rewards.append(sum(world.step(said)["reward"] for said in row["said"]))
print(json.dumps(rewards))
"""


def test_skyrl_gym(python_of, tmp_path):
    python, file = python_of("skyrl-gym"), tmp_path / "sums.jsonl"
    rows = [
        {"prompt": [{"role": "user", "content": f"{n} + 1?"}], "reward_spec": {"ground_truth": str(n + 1)}, "max_turns": 3}
        for n in range(90)
    ]
    file.write_text("\n".join(map(json.dumps, rows)))

    def reply(item: TaskItem, turn: int) -> str:
        right = json.loads(item.truth)["reward_spec"]["ground_truth"]
        return f"#### {right if int(right) % 3 == turn else 'x' if int(right) % 2 else 0}"

    require_equal(python, OF_SKYRL, played("skyrl-gym:gsm8k_multi_turn", {"file": str(file)}, python, reply))


OF_REASONING = """
import json, sys, reasoning_gym
from reasoning_gym.coaching.base_curriculum import DefaultCurriculumContext, RangeAttributeMode
rewards = []
for row in json.load(sys.stdin):
    truth = row["truth"]
    curriculum = reasoning_gym.factory.create_curriculum(truth["name"])
    curriculum.set_global_level(truth["level"])
    context = DefaultCurriculumContext(RangeAttributeMode.UPPER_BOUND)
    config = curriculum.generate_configuration({"seed": truth["seed"], "size": 1}, context)
    dataset = reasoning_gym.create_dataset(truth["name"], **vars(config))
    rewards.append(dataset.score_answer(row["said"][0].removeprefix("<answer>").removesuffix("</answer>"), dataset[0]))
print(json.dumps(rewards))
"""


def test_reasoning_gym(python_of):
    python = python_of("reasoning-gym")
    options = {"levels": 3, "reward": {"success": 0.5}}
    rows = played("reasoning-gym:chain_sum=3,leg_counting", options, python, lambda item, turn: "<answer>4</answer>")
    right = played("reasoning-gym:chain_sum=3,leg_counting", options, python, lambda item, turn: "7 or 8 or 12")
    for one in (rows, right):
        assert [row["reward"] for row in one] == pytest.approx(evaluated(python, OF_REASONING, one))
    assert {row["truth"]["level"] for row in rows} == {0, 1, 2}
    assert {row["truth"]["name"] for row in rows} == {"chain_sum", "leg_counting"}


def test_reasoning_gyms_own_answers_are_worth_one(python_of):
    with open_environment("reasoning-gym:chain_sum,leg_counting", {"levels": 2}, 60.0, python_of("reasoning-gym")) as environment:
        for item in environment.items("heldout", ITEMS, 0):
            known = environment.hindsight(item, item.messages, None)
            assert environment.verify(item, [*item.messages, *known.demonstration], None).value == 1.0


def test_atropos(python_of):
    """The environment's own groups of eight: right and wrong answers together, so that none is dropped."""
    python, file = python_of("atropos"), HERE / "atropos_sums.py"

    def reply(item: TaskItem, turn: int) -> str:
        first, second = (int(word.strip("?")) for word in item.messages[-1].content.split()[2::2])
        return f"It is {first + second if first % 2 else first} I think."

    rows = played(f"atropos:{file}", {"reward": {"lowest": -1}}, python, reply)
    own = evaluated(python, (HERE / "atropos_evaluates.py").read_text(), [row | {"file": str(file)} for row in rows])
    assert [row["reward"] for row in rows] == own
    assert set(own) == {-1.0, 1.0}


def test_atropos_tools_are_the_policys(python_of):
    with open_environment(f"atropos:{HERE / 'atropos_tools.py'}", {}, 60.0, python_of("atropos")) as environment:
        assert [(tool.name, list(tool.parameters["properties"])) for tool in environment.tools()] == [("add", ["a"])]
        [item] = environment.items("train", 1, 0)
        play, said = Play(environment, item, 0), Message("assistant", "", (ToolCall("c", "add", '{"a": 1}'),))
        assert play.answer([*item.messages, said]).done
        play.end("done")
        assert outcome_of(environment, item, [*item.messages, said], play.ending).success


OF_BFCL = """
import json, sys
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
rewards = []
for place, row in enumerate(json.load(sys.stdin)):
    told = multi_turn_checker(row["calls"], row["right"], row["task"], "multi_turn_base", f"policy{place}")
    rewards.append(float(told["valid"]))
print(json.dumps(rewards))
"""


def test_bfcl(python_of):
    """The right calls of each task, but for every third of them: those lack the last call of the conversation."""
    python = python_of("bfcl")
    place = subprocess.run(
        [python, "-c", "import bfcl_eval; print(bfcl_eval.__path__[0])"], capture_output=True, text=True, check=True
    )
    tasks, right = (_of_bfcl(Path(place.stdout.strip()) / "data" / folder) for folder in ("", "possible_answer"))
    own, rows = [], []
    with open_environment("bfcl:multi_turn_base", {}, 60.0, python) as environment:
        parameters = {tool.name: list(tool.parameters["properties"]) for tool in environment.tools()}
        for number, item in enumerate(environment.items("train", ITEMS, 0)):
            name = json.loads(item.truth)["id"]
            turns = [list(turn) for turn in right[name]["ground_truth"]]
            if number % 3 == 0:
                next(turn for turn in reversed(turns) if turn).pop()
            own.append(_rewarded(environment, item, [[_call_of(call, parameters) for call in turn] for turn in turns]))
            rows.append(
                {"calls": [[[call] for call in turn] for turn in turns], "right": right[name]["ground_truth"], "task": tasks[name]}
            )
    assert own == evaluated(python, OF_BFCL, rows)
    assert [reward for number, reward in enumerate(own) if number % 3] == [1.0] * 33
    assert 0.0 in own


def _of_bfcl(folder: Path) -> dict[str, JsonObject]:
    lines = (folder / "BFCL_v4_multi_turn_base.json").read_text().splitlines()
    return {row["id"]: row for row in map(json.loads, lines)}


def _call_of(text: str, parameters: dict[str, list[str]]) -> ToolCall:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    given = dict(zip(parameters[call.func.id], map(ast.literal_eval, call.args), strict=False))
    given |= {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    return ToolCall("c", call.func.id, json.dumps(given))


def _rewarded(environment: Any, item: TaskItem, turns: Sequence[Sequence[ToolCall]]) -> float:
    play, messages = Play(environment, item, 0), list(item.messages)
    for turn in turns:
        for said in [*[Message("assistant", "", (call,)) for call in turn], Message("assistant", "Done.")]:
            answer = play.answer([*messages, said])
            messages += [said, *answer.messages]
    play.end("done")
    return outcome_of(environment, item, messages, play.ending).evidence["reward"]


OF_VERIFIERS = """
import asyncio, json, sys
import verifiers.v1 as vf
from verifiers.v1.utils.loaders import load_taskset
import sums_v1
tasks = list(load_taskset(vf.TasksetConfig(id="sums-v1")))
rewards = []
for row in json.load(sys.stdin):
    task = tasks[row["truth"]["place"]]
    reply = row["said"][0]
    rewards.append(float(str(task.data.answer) in reply.split()) + 0.25 * float(len(reply) < 6))
print(json.dumps(rewards))
"""


def put(python: str, name: str) -> None:
    """Install a taskset of verifiers."""
    site = subprocess.run(
        [python, "-c", "import site; print(site.getsitepackages()[0])"], capture_output=True, text=True, check=True
    )
    (Path(site.stdout.strip()) / name).write_text((HERE / name).read_text())


def test_verifiers(python_of):
    python = python_of("verifiers")
    put(python, "sums_v1.py")
    options = {"reward": {"highest": 1.25, "success": 1}}
    rows = played("verifiers:sums-v1", options, python, lambda item, turn: "20" if item.identity[-7:-4] < " 2 " else "It is 30")
    require_equal(python, OF_VERIFIERS, rows)


def test_verifiers_tasks_that_do_more_than_ask_are_refused(python_of):
    """What the library runs around a reply would be left out, and the reward be another one."""
    python = python_of("verifiers")
    put(python, "visits_v1.py")
    with (
        pytest.raises(ConfigError, match="its finalize needs a machine"),
        open_environment("verifiers:visits-v1", {}, 60.0, python),
    ):
        pass


@pytest.fixture
def guessing(python_of) -> Iterator[str]:
    """The URL of a guessing game behind OpenEnv's own server."""
    port = free_port()
    server = subprocess.Popen([python_of("openenv"), str(HERE / "openenv_guess.py"), str(port)], stdout=subprocess.PIPE, text=True)
    assert server.stdout
    assert server.stdout.readline() == "ready\n"
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.communicate()


OF_OPENENV = """
import json, sys
from openenv.core import GenericEnvClient
rewards = []
rows = json.load(sys.stdin)
with GenericEnvClient(rows[0]["url"]).sync() as client:
    for row in rows:
        client.reset(seed=row["truth"]["seed"])
        rewards.append(sum(client.step({"number": int(said)}).reward for said in row["said"]))
print(json.dumps(rewards))
"""


def test_openenv(python_of, guessing):
    python = python_of("openenv")
    rows = played(f"openenv:{guessing}", {}, python, lambda item, turn: item.messages[-1].content[-2] if turn else "2")
    require_equal(python, OF_OPENENV, [row | {"url": guessing} for row in rows])
