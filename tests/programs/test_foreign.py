"""Agents that nobody here wrote play episodes, four at a time: each is installed in a place of its own and run as its page says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from clawpipe.core.basics.json_types import Row
from clawpipe.core.config.engine import EngineSpec
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.environments.agent import AgentEnvironment
from clawpipe.play.environments.base import Verdict
from clawpipe.play.workers.request import ShardRequest
from clawpipe.play.workers.worker import Worker
from tests.environments.swe.conftest import needs_bubblewrap, row, write_repository, write_rows  # noqa: F401  (a fixture)
from tests.programs.conftest import scripted

pytestmark = pytest.mark.foreign
ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".foreign"  # kept between runs: some are gigabytes
OPENCLAW = ROOT / ".openclaw"
HERE = Path(__file__).parent
TOGETHER = 4
PACKAGES = {
    "mini-swe-agent": ["mini-swe-agent==2.4.6"],
    "openai-agents": ["openai-agents==0.24.0"],
    "smolagents": ["smolagents[openai]==1.26.0"],
    "hermes": ["hermes-agent==0.19.0"],
}


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random base with SmolLM2's tokenizer and 65,536 positions: these agents' prompts exceed 8,192 tokens."""
    folder = tmp_path_factory.mktemp("long") / "base"
    tokenizer = load_tokenizer(resolve_base("smollm2-135m-instruct").path)
    torch.manual_seed(0)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    config = LlamaConfig(
        **{"vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
        **{"num_attention_heads": 2, "max_position_embeddings": 65_536, "bos_token_id": None, "eos_token_id": end},
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def program_of(name: str, script: str) -> str:
    """Return the path of a script that pip has installed, in an environment that is made when it is not there."""
    folder = PLACE / name / "bin"
    if not (folder / script).exists():
        subprocess.run([sys.executable, "-m", "venv", PLACE / name], check=True)
        subprocess.run([folder / "python", "-m", "pip", "install", "-q", *PACKAGES[name]], check=True)
    return str(folder / script)


def call(name: str, **arguments: str | int) -> str:
    """A tool call as the policy writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@pytest.fixture
def play(base: Path, tmp_path: Path):
    """play(command, replies, ...): the rows of four episodes; without replies the random policy says what it draws."""
    torch.set_num_threads(1)
    worker = Worker("cpu")
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(
        "".join(json.dumps({"prompt": f"What is 6 * {n}?", "answer": str(6 * n), "check": "contains"}) + "\n" for n in range(12))
    )

    def play(
        command: Sequence[str], replies: Sequence[str] = (), max_new_tokens: int = 400, max_turns: int = 12, **options
    ) -> list[Row]:
        given = {"command": list(command), "tasks": str(tasks), "sandbox": "unsafe_local"} | options
        given["limits"] = {"seconds": 900, "memory_bytes": 8 << 30, "processes": 512, "disk_bytes": 1 << 30}
        items = AgentEnvironment(**given).items("train", 2, 0)
        policy = PolicySpec(base=str(base), adapter=None, dtype="float32", tool_call_format="hermes", policy_version="f" * 16)
        request = ShardRequest(
            policy=policy,
            engine=scripted(*replies) if replies else EngineSpec(),
            environment="agent",
            options=given,
            items=[item.as_row() for item in items],
            group_size=TOGETHER // 2,
            temperature=1.0,
            max_new_tokens=max_new_tokens,
            max_turns=12,
            seed=7,
        )
        return worker._rows(request)  # pyright: ignore[reportPrivateUsage]  # what is written into a shard

    yield play
    worker.close()


@torch.inference_mode()
def require_log_probs(rows: Sequence[Row], base: Path) -> None:
    """Check the recorded log-probs by a plain forward of the model itself."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    for played in rows:
        ids = torch.tensor([played["token_ids"]])
        likely = model(ids).logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0].tolist()
        wanted = [value if sampled else 0.0 for value, sampled in zip([0.0, *likely], played["loss_mask"], strict=True)]
        assert played["logprobs"] == pytest.approx(wanted, abs=2e-3)


def kinds(rows: Sequence[Row]) -> list[list[str]]:
    assert {(row["error"], row["ended"], json.loads(row["verdict"])["exit"]) for row in rows} == {(None, "done", 0)}
    return [[turn["kind"] for turn in row["turns"]] for row in rows]


def results(rows: Sequence[Row]) -> list[str]:
    """What tools said, in all rows."""
    return [message["content"] for row in rows for message in row["messages"] if message["role"] == "tool"]


WORK = ("echo $((6 * 7)) > found", "cat found", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
MINI = {
    "text": (
        ["-c", "mini_textbased.yaml", "--model-class", "litellm_textbased"],
        [f"THOUGHT: go.\n\n```mswea_bash_command\n{command}\n```" for command in WORK],
    ),
    "tools": (["-c", "mini.yaml"], [call("bash", command=command) for command in WORK]),
}


def mini(*more: str) -> list[str]:
    program = program_of("mini-swe-agent", "mini")
    return [program, *more, "-y", "--exit-immediately", "-t", "{prompt}", "-m", "openai/{model}", "-o", "made.json"]


QUIET = {"MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_CONFIGURED": "true"}


def test_mini_swe_agent_mends_a_repository(play, tmp_path, needs_bubblewrap):  # noqa: F811
    commit = write_repository(tmp_path / "repositories" / "ann__tally")
    tasks = write_rows(tmp_path / "swe.jsonl", *(row(commit, instance_id=f"t{n}", problem_statement=f"Fault {n}.") for n in (1, 2)))
    program_of("mini-swe-agent", "mini")
    packages = str(next((PLACE / "mini-swe-agent" / "lib").glob("python*/site-packages")))
    world = {"name": "swe", "options": {"tasks": str(tasks), "share": 0.01, "sandbox_options": {"paths": [packages]}}}
    fix = "sed -i 's/number < best/number > best/' tally/__init__.py"
    said = [call("bash", command=command) for command in (fix, "python -m pytest -q", WORK[-1])]
    command = ["/usr/bin/python3", "-m", "minisweagent.run.mini", *mini(*MINI["tools"][0])[1:]]  # the Python of the sandbox
    rows = play(command, said, tasks="", sandbox="bubblewrap", world=world, variables=QUIET | {"PYTHONPATH": packages})
    assert [one for one in results(rows) if "4 passed" in one], [(one["error"], results([one])) for one in rows]
    for played in rows:
        found = json.loads(played["verdict"])["check"]
        assert (found["left_out"], set(found["fail_to_pass"].values())) == ([], {"passed"})


@pytest.mark.parametrize("kind", MINI)
def test_mini_swe_agent_is_one_row_and_solves_it(play, base, kind):
    more, said = MINI[kind]
    rows = play(mini(*more), said, variables=QUIET, check=["grep", "-q", "42", "found"])
    assert kinds(rows) == [["main"] * 3] * TOGETHER
    assert [json.loads(row["verdict"])["check"]["success"] for row in rows] == [True] * TOGETHER
    require_log_probs(rows, base)


def test_mini_swe_agent_with_a_policy_that_draws(play, base):
    """What the random policy says is no action; the agent drops it from its history, and gives up after three answers."""
    rows = play(mini(*MINI["text"][0]), variables=QUIET, max_new_tokens=16)
    assert [len(row["turns"]) for row in rows] == [1] * (3 * TOGETHER)
    assert len({tuple(row["token_ids"]) for row in rows}) == 3 * TOGETHER
    require_log_probs(rows, base)


def test_mini_swe_agent_of_the_benchmark_does_a_task_in_one_row(play, base, needs_bubblewrap):  # noqa: F811
    """As in benchmarks/learns.py: its prompts, its class of models, a task of `terminal`."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from learns_mini import options, packages  # pyright: ignore[reportMissingImports]

    program_of("mini-swe-agent", "mini")
    given = options(packages(PLACE / "mini-swe-agent"))
    [item] = AgentEnvironment(**given).items("train", 1, 0)
    [(file, entry)] = json.loads(item.truth)["wanted"].items()
    said = [f"```bash\n{command}\n```" for command in (f"echo {entry['text']} > {file}", WORK[-1])]
    before = ["no command"] * 5  # which it is shown, and the script counts
    rows = play(**given, replies=[*before, *said], tasks="", sandbox="bubblewrap")
    solved = [row for row in rows if row["item_id"] == item.item_id]
    assert kinds(solved) == [["main"] * 2] * (TOGETHER // 2)
    environment = AgentEnvironment(**given)
    assert all(environment.verify(item, [], Verdict(json.loads(row["verdict"]))).success for row in solved)
    require_log_probs(rows, base)


def test_hermes_calls_its_terminal_in_one_row(play, base):
    hermes = program_of("hermes", "hermes")
    said = [call("terminal", command="echo $((6 * 7))"), "It is 42."]
    rows = play(["sh", str(HERE / "agents/hermes.sh")], said, variables={"HERMES": hermes})
    assert kinds(rows) == [["main"] * 2] * TOGETHER
    assert all(row["prompt_tokens"] > 8192 for row in rows)
    assert all("42" in told for told in results(rows))
    require_log_probs(rows, base)


def test_openclaw_rewrites_its_history_in_two_rows(play, base):
    """It moves a message of its own behind the results of tools, so the second prompt does not begin with the first turn."""
    if not (OPENCLAW / ".installed").exists():
        subprocess.run(["make", "-C", ROOT, "-o", ".venv/.installed", ".openclaw/.installed"], check=True)
    said = [call("exec", command="echo $((6 * 7))"), "It is 42."]
    rows = play(["sh", str(HERE / "agents/openclaw.sh")], said, variables={"OPENCLAW": str(OPENCLAW)})
    assert kinds(rows) == [["main"]] * (2 * TOGETHER)
    assert ["42" in told for told in results(rows)] == [True] * TOGETHER
    assert len({json.loads(row["extra"])["episode"] for row in rows}) == TOGETHER
    require_log_probs(rows, base)


def test_openai_agents_hand_over_to_a_colleague(play, base):
    """It asks by the Responses API, as a stream; the colleague's history begins anew, so it is a row of its own."""
    python = program_of("openai-agents", "python")
    said = [call("times", a=6, b=7), call("transfer_to_writer"), "It is 42."]
    rows = play([python, str(HERE / "agents/openai_agents.py")], said)
    assert kinds(rows) == [["main", "main"], ["main"]] * TOGETHER
    require_log_probs(rows, base)


def test_smolagents_rewrites_its_history_in_two_rows(play, base):
    """It writes the call that it read behind the answer, so the second prompt does not begin with the first turn."""
    python = program_of("smolagents", "python")
    said = ["Thought: ask.\n<code>\nprint(times(6, 7))\n</code>", "<code>\nfinal_answer(42)\n</code>"]
    rows = play([python, str(HERE / "agents/smolagents_loop.py")], said)
    assert kinds(rows) == [["main"]] * (2 * TOGETHER)
    assert ["Calling tools:" in row["messages"][2]["content"] for row in rows].count(True) == TOGETHER
    assert len({json.loads(row["extra"])["episode"] for row in rows}) == TOGETHER
    require_log_probs(rows, base)
