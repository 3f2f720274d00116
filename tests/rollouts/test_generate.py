import json
import shutil
import subprocess
import sys

import pyarrow as pa
import pytest

from clawpipe.core.config.night import EnvironmentConfig, Rollouts, Runtime
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.errors import BusyError, NotFoundError
from clawpipe.learn.evaluation.heldout.draw import make_task_items
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.version import base_ref
from clawpipe.play.rollouts.generate import Chunk, generate_chunk, plan_chunks, round_items, split_evenly
from clawpipe.play.workers.pool import WorkerPool
from clawpipe.play.workers.request import Job, ResolveRequest
from tasks.rollouts import collect_rollouts

LETTERS = EnvironmentConfig(name="letters", train_items=8, heldout_items=4)
CONFIG = Rollouts(items=6, group_size=2, temperature=1.0, max_new_tokens=6, max_turns=2, chunks=2, shard_rollouts=4)


@pytest.fixture(scope="module")
def pool(quick_children, tmp_path_factory):
    with WorkerPool(Runtime(device="cpu", workers=1), tmp_path_factory.mktemp("logs")) as pool:
        yield pool


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def items(store):
    return make_task_items(store, LETTERS).output


@pytest.fixture(scope="module")
def policy():
    return base_ref("random", resolve_base("random").digest, "pythonic", "float32")


CHUNK = Chunk(ordinals=(0, 1, 2, 3, 4), together=(0, 1, 2, 3, 4))


def generate(store, pool, tmp_path, items, policy, chunk=CHUNK, seed=3):
    return generate_chunk(store, pool, tmp_path / "work", items, policy, LETTERS, CONFIG, chunk, seed)


def test_rows_hold_the_contract_and_every_token_of_both_turns(store, pool, tmp_path, items, policy):
    result = generate(store, pool, tmp_path, items, policy)
    rows = read_dataset(store, result.output).to_pylist()
    assert result.rows_in == result.rows_out == len(rows) == 10
    for row in rows:
        assert len(row["token_ids"]) == len(row["loss_mask"]) == len(row["logprobs"])
        sampled = [place for place, mine in enumerate(row["loss_mask"]) if mine]
        assert sampled == [place for turn in row["turns"] for place in range(turn["start"], turn["end"])]
        assert min(sampled) == row["prompt_tokens"]
        assert [message["role"] for message in row["messages"]] == ["user", "assistant", "user", "assistant"]
        assert row["policy_version"] == policy.policy_version


def test_another_try_reuses_shards_and_replaces_a_damaged_one(store, pool, tmp_path, items, policy, monkeypatch):
    whole = generate(store, pool, tmp_path, items, policy)
    shutil.rmtree(tmp_path / "work")
    monkeypatch.setattr("clawpipe.play.rollouts.generate.publish_dataset", lambda *_, **__: 1 / 0)  # dies after the last shard
    with pytest.raises(ZeroDivisionError):
        generate(store, pool, tmp_path, items, policy)
    monkeypatch.undo()
    shards = sorted((tmp_path / "work").rglob("*.parquet"))
    assert len(shards) == 3
    shards[0].write_bytes(shards[0].read_bytes()[:-1])
    asked = []
    monkeypatch.setattr(pool, "run", lambda job, run=pool.run: asked.append(job) or run(job))
    assert generate(store, pool, tmp_path, items, policy).output == whole.output
    assert len(asked) == 1


def test_no_shard_of_a_program_is_taken_that_was_edited(store, pool, tmp_path, policy):
    program, tasks = tmp_path / "agent.py", tmp_path / "tasks.jsonl"
    tasks.write_text("".join(f'{{"prompt": "Ask {number}.", "answer": "a"}}\n' for number in range(9)))
    options = {"command": [sys.executable, str(program)], "tasks": str(tasks), "sandbox": "unsafe_local"}
    agent = EnvironmentConfig(name="agent", train_items=1, heldout_items=1, options=options)
    items = make_task_items(store, agent).output
    asked = []
    for word in ("old", "new"):
        program.write_text(f"""
import os, urllib.request
body = b'{{"model": "any", "max_tokens": 1, "messages": [{{"role": "user", "content": "{word}"}}]}}'
headers = {{"Authorization": f"Bearer {{os.environ['OPENAI_API_KEY']}}", "Content-Type": "application/json"}}
urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)).read()
""")
        chunk = Chunk(ordinals=(0,), together=(0,))
        made = generate_chunk(store, pool, tmp_path / "work", items, policy, agent, CONFIG, chunk, 3).output
        asked += [row["messages"][0]["content"] for row in read_dataset(store, made).to_pylist()]
    assert asked == ["old", "old", "new", "new"]


def test_seed_and_policy_decide_what_is_sampled(store, pool, tmp_path, items, policy):
    first = generate(store, pool, tmp_path, items, policy)
    shutil.rmtree(tmp_path / "work")
    assert generate(store, pool, tmp_path, items, policy).output.digest == first.output.digest
    assert generate(store, pool, tmp_path, items, policy, seed=4).output.digest != first.output.digest


def test_small_chunks_are_generated_together_and_keep_their_rows(store, pool, tmp_path, items, policy, monkeypatch):
    plan = plan_chunks([0, 1, 2, 3], CONFIG)
    assert [chunk.ordinals for chunk in plan] == [(0, 1), (2, 3)]
    whole = Chunk(ordinals=(0, 1, 2, 3), together=(0, 1, 2, 3))
    together = read_dataset(store, generate(store, pool, tmp_path, items, policy, whole).output)
    asked = []
    monkeypatch.setattr(pool, "run", lambda job, run=pool.run: asked.append(job) or run(job))
    parts = [
        generate(store, pool, tmp_path, items, policy, chunk.model_copy(update={"together": whole.together})) for chunk in plan
    ]
    assert pa.concat_tables([read_dataset(store, part.output) for part in parts]).equals(together)
    assert asked == []


def test_chunks_share_a_batch_up_to_a_shard():
    config = CONFIG.model_copy(update={"chunks": 16, "group_size": 8, "shard_rollouts": 64})
    plan = plan_chunks(range(16), config)
    assert len(plan) == 16
    assert {chunk.together for chunk in plan} == {tuple(range(8)), tuple(range(8, 16))}
    assert all(set(chunk.ordinals) <= set(chunk.together) for chunk in plan)


def test_an_error_in_a_worker_keeps_its_kind(pool):
    with pytest.raises(NotFoundError, match="no base model"):
        pool.run(Job(request=ResolveRequest(name="/no/such/model")))


def test_a_killed_worker_is_replaced(pool, tmp_path, monkeypatch, store, items, policy):
    monkeypatch.setenv("CLAWPIPE_KILL_AT", "rollouts.before_write")
    with WorkerPool(Runtime(device="cpu", workers=1), tmp_path / "logs") as doomed:
        with pytest.raises(BusyError, match="signal 9"):
            generate(store, doomed, tmp_path, items, policy)
        monkeypatch.delenv("CLAWPIPE_KILL_AT")
        assert generate(store, doomed, tmp_path, items, policy).rows_out == 10


def test_rounds_walk_through_all_items():
    first, second, third = (round_items([8], [[4]] * 3, number, seed=1) for number in range(3))
    assert sorted(first + second) == list(range(8))
    assert third == first
    assert round_items([8], [[4]], 0, seed=2) != first


def test_rounds_walk_through_each_environments_items():
    """The first environment's items lie at 0 to 3, the second's at 4 and 5."""
    wanted = [[2, 1], [2, 1], [1, 2]]
    rounds = [round_items([4, 2], wanted, number, seed=1) for number in range(3)]
    assert [[sum(place < 4 for place in one), sum(place >= 4 for place in one)] for one in rounds] == wanted
    assert sorted(rounds[0] + rounds[1]) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("count", "parts", "sizes"), [(32, 16, {2}), (5, 16, {1}), (33, 16, {2, 3}), (1000, 64, {15, 16})])
def test_chunks_are_even_and_complete(count, parts, sizes):
    chunks = split_evenly(range(count), parts)
    assert [ordinal for chunk in chunks for ordinal in chunk] == list(range(count))
    assert {len(chunk) for chunk in chunks} == sizes
    assert len(chunks) == min(count, parts)


WRITE_THE_SHARD_ONCE = """
import re, sys
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.play.rollouts.generate import _shard
from clawpipe.play.workers.request import ShardRequest

work = Path(sys.argv[1])

class Pool:
    def run(self, job):
        with (work / "runs").open("a") as runs:
            runs.write("x")
        while len((work / "runs").read_text()) == 1 and not re.search("-> FLOCK", Path("/proc/locks").read_text()):
            pass  # the other process neither waits nor generates yet
        pq.write_table(pa.table({"x": [1, 2]}), job.output)
        return 2

policy = PolicySpec(base="/x", adapter=None, dtype="float32", tool_call_format="pythonic", policy_version="v")
sampling = {"group_size": 1, "temperature": 1.0, "max_new_tokens": 4, "max_turns": 1, "seed": 0}
print(_shard(Pool(), work, ShardRequest(policy=policy, environment="letters", options={}, items=[], **sampling), []).name)
"""


def test_two_processes_generate_a_shard_once(tmp_path):
    command = [sys.executable, "-c", WRITE_THE_SHARD_ONCE, tmp_path]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    (first, _), (second, _) = (process.communicate(timeout=120) for process in both)
    assert first == second != ""
    assert (tmp_path / "runs").read_text() == "x"


def test_collected_rows_say_which_engines_sampled_them(tmp_path, monkeypatch):
    """Two rows of one episode by one engine, one by another, one by the embedded engine, whose episode left several rows."""
    monkeypatch.setenv("CLAWPIPE_HOME", str(tmp_path))
    engines = [{"engine": {"name": name}} for name in ("b", "b", "a")]
    extras = [engines[0] | {"episode": "e"}, engines[1] | {"episode": "e", "part": 1}, engines[2], {"episode": "f"}]
    texts = [*(json.dumps(extra, sort_keys=True) for extra in extras), None]
    rows = [{"trajectory_id": str(n), "loss_mask": [False, True, True], "extra": text} for n, text in enumerate(texts)]
    store = Store(tmp_path / "store")
    chunks = [
        publish_dataset(store, "trajectories", [conformed(pa.Table.from_pylist(part), schema_of("trajectories"))])
        for part in (rows[:2], rows[2:])
    ]
    details = collect_rollouts.function(chunks=chunks).details
    assert details == {"sampled_by": [{"name": "a", "rows": 1}, {"name": "b", "rows": 2}], "sampled_tokens": 10}


def test_programs_that_failed_by_themselves_are_counted_once(tmp_path, monkeypatch):
    """An episode of two rows whose program failed, another that did, one that ended well, one of no program."""
    monkeypatch.setenv("CLAWPIPE_HOME", str(tmp_path))
    failed, well = json.dumps({"exit": 3, "failed": True}), json.dumps({"exit": 0})
    extras = [json.dumps({"episode": "e", **part}) for part in ({}, {"part": 1})]
    rows = [*zip((failed, failed), extras, strict=True), (failed, None), (well, None), (None, None)]
    table = [{"trajectory_id": str(n), "verdict": verdict, "extra": extra} for n, (verdict, extra) in enumerate(rows)]
    chunk = publish_dataset(
        Store(tmp_path / "store"), "trajectories", [conformed(pa.Table.from_pylist(table), schema_of("trajectories"))]
    )
    [warning] = collect_rollouts.function(chunks=[chunk]).details["warnings"]
    assert "failed by itself in 2 episodes" in warning
    assert "(2 x exit code 3)" in warning
