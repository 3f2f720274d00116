"""Whole nights whose rollouts and evaluations come from vLLM servers: fakes in front of the embedded engine."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_ref, read_dataset
from clawpipe.model.policy.base import resolve_base
from tests.fake_vllm import FakeVllm, busy, cut, serving

pytestmark = [pytest.mark.slow, pytest.mark.trains]
DATA = 65  # exit code


@pytest.fixture
def fake() -> FakeVllm:
    return FakeVllm(resolve_base("random").path)


def engine(url: str, **settings: Any) -> str:
    return f"rollouts.engine={json.dumps({'name': 'vllm', 'url': url, **settings})}"


def details(status: dict[str, Any], name: str) -> dict[str, Any]:
    [step] = [step for step in status["steps"] if step["name"] == name]
    return step["details"]


@pytest.mark.long
def test_a_night_on_vllm_learns_and_a_killed_one_ends_alike(new_clawpipe, finished, fake):
    fake.faults.extend([busy, cut])
    with serving(fake) as url:
        whole = (clawpipe := new_clawpipe("vllm")).night(engine(url))
        assert whole["verdict"] == "PROMOTE"
        gain = whole["heldout"]["candidate"]["success"] - whole["heldout"]["base"]["success"]
        assert gain > 0.3
        [rounds] = [details(whole, f"round-1/{name}")["sampled_by"] for name in ["generate_rollouts"]]
        assert rounds == [{"name": "vllm", "version": "0.32.0-fake", "dtype": "float32", "rows": 128}]
        assert details(whole, "check_model")["engine"]["largest"] < 1e-3
        assert url not in json.dumps([step["details"] for step in whole["steps"]])
        assert fake.held == {}  # what was loaded for two rounds has been unloaded

        other = new_clawpipe("vllm-killed")
        end = other.run(engine(url), kill_at="rollouts.before_rename#6")
        assert end.code == -signal.SIGKILL
        other.await_quiet()
        asked = len(fake.asked)
        again = other.night(engine(f"{url}/"))  # the same server by another name is no reason to begin anew
        assert (again["policy_version"], again["verdict"]) == (whole["policy_version"], whole["verdict"])
        assert len(fake.asked) - asked < asked / 2  # shards of before were taken
    assert clawpipe.night(engine("http://127.0.0.1:9"))["verdict"] == "PROMOTE"  # a finished night needs no server


def test_raw_log_probs_and_stale_adapters_end_a_night(new_clawpipe, fake):
    clawpipe = new_clawpipe("vllm-wrong")
    with serving(fake) as url:
        fake.raw = True
        done = clawpipe.run(engine(url))
        assert done.code == DATA
        assert "nats off" in done.json["what"]
        assert "raw ones" in done.json["what"]
        assert "processed_logprobs" in done.json["fix"]
        fake.raw, fake.stale = False, True
        done = clawpipe.run(engine(url))
        assert done.code == DATA
        assert "nats off" in done.json["what"]
    assert "round-1/train " in done.stderr  # the base was right; the adapter that was trained was not what answered
    assert done.stderr.splitlines()[-1].split()[:2] == ["round-2/generate_rollouts", "stopped"]


def test_importance_is_corrected_for_a_server_of_fewer_bits(new_clawpipe, fake):
    clawpipe = new_clawpipe("vllm-bfloat16")
    with serving(fake) as url:
        status = clawpipe.night(engine(url, dtype="bfloat16"), "rounds=1", "environment.heldout_items=50")
    assert "round-1/annotate" in [step["name"] for step in status["steps"]]
    updates = details(status, "round-1/train")["updates"]
    assert all("tis_frac" in update for update in updates)
    store = Store(clawpipe.home.store)
    [made] = [step["artifacts"]["output"] for step in status["steps"] if step["name"] == "round-1/generate_rollouts"]
    rows = read_dataset(store, dataset_ref(store, made["name"], made["digest"])).to_pylist()
    assert {json.loads(row["extra"])["engine"]["dtype"] for row in rows} == {"bfloat16"}
