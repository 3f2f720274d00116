"""Several servers of one policy: which one is asked, and what happens when one dies, hangs, is full, or is not what it was."""

from __future__ import annotations

import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.services.service import Service, running
from clawpipe.core.system.ports import LOOPBACK, free_port
from clawpipe.errors import DataError
from clawpipe.model.engines import balance
from clawpipe.model.engines.balance import Balance
from clawpipe.model.engines.base import Sampling, open_engine
from clawpipe.model.engines.witness import Witness
from clawpipe.model.policy.agreement import EngineAgreement, bound_of
from clawpipe.model.policy.load import load_policy
from clawpipe.model.policy.probe import probe_for
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.play.environments.letters import LettersEnvironment
from clawpipe.play.workers.compare import places_of
from clawpipe.play.workers.request import CheckRequest, Job, ShardRequest
from clawpipe.play.workers.worker import Worker
from tests import fake_vllm
from tests.fake_vllm import FakeVllm, serving

PROMPTS = [[65, 66, 67], [65, 66], [70, 71, 72, 73]]
SAMPLING = Sampling(0.7, 5)
WAVE = 48


def wave(engine: Any, rows: int = WAVE) -> dict[int, list[int]]:
    """Sample a turn of each of many rows."""
    turns = engine.begin([PROMPTS[row % 3] for row in range(rows)]).sample({row: row for row in range(rows)}, SAMPLING)
    return {row: turn.ids for row, turn in turns.items()}


def witness_of(policy: PolicySpec) -> Witness:
    adapter = Path(policy.adapter) if policy.adapter else None
    model = load_policy(Path(policy.base), adapter, "float32", torch.device("cpu"))
    return Witness(places=places_of(model, probe_for(model, Path(policy.base))), bound=bound_of("float32", None))


@pytest.fixture
def adapted(policy: PolicySpec, adapter: Path) -> PolicySpec:
    return policy.model_copy(update={"adapter": str(adapter)})


def process(stack: ExitStack, policy: PolicySpec, port: int, log: Path, *arguments: str) -> Service:
    """Run a server as a process of its own, on this port."""
    command = [sys.executable, "-m", "tests.fake_vllm", policy.base, str(port), *arguments]
    service = stack.enter_context(running("vLLM", command, log, {}))
    service.wait_healthy(f"http://{LOOPBACK}:{port}/version", timeout=120.0)
    return service


@pytest.mark.long
def test_a_killed_server_is_left_out_and_comes_back(opened, adapted, tmp_path, caplog):
    """The wave in which it dies is whole; it comes back with the adapter, and not with another policy."""
    expected = wave(open_engine(EngineSpec(), adapted, "cpu"))
    ports = free_port(), free_port()
    urls = tuple(f"http://{LOOPBACK}:{port}" for port in ports)
    with ExitStack() as stack, ThreadPoolExecutor(1) as thread:
        process(stack, adapted, ports[0], tmp_path / "first.log")
        second = process(stack, adapted, ports[1], tmp_path / "second.log", "--seconds", "0.2")
        engine = opened("vllm", urls, adapted)
        engine.require(witness_of(adapted))
        known = engine._servers.balance
        going = thread.submit(wave, engine)
        while not known.at(urls[1]).requests:
            pass
        second.process.kill()
        assert going.result() == expected
        assert known.here() == [urls[0]]

        again = process(stack, adapted, ports[1], tmp_path / "again.log")
        while urls[1] not in known.here():
            assert wave(engine) == expected
        again.process.kill()
        assert wave(engine) == expected
        process(stack, adapted, ports[1], tmp_path / "stale.log", "--stale")
        caplog.set_level(logging.WARNING)
        while "does not hold the policy" not in caplog.text:
            assert wave(engine) == expected
        assert urls[1] not in known.here()


def test_a_server_that_is_not_there_at_first_joins_later(opened, policy):
    port = free_port()
    with serving(FakeVllm(Path(policy.base))) as url:
        engine = opened("vllm", (f"http://{LOOPBACK}:{port}", url), policy)
        assert len(wave(engine)) == WAVE
        with serving(late := FakeVllm(Path(policy.base)), port):
            while late.GENERATE not in late.asked:
                wave(engine)


def test_one_that_answers_500_at_once_gets_no_more_than_others(opened, policy):
    dead, well = FakeVllm(Path(policy.base)), FakeVllm(Path(policy.base), seconds=0.05)
    with serving(dead) as first, serving(well) as second:
        engine = opened("vllm", (first, second), policy, concurrency=8)
        dead.faults.extend([fake_vllm.broken] * 1000)
        assert len(wave(engine)) == WAVE
        assert dead.asked.count("fault") < 8 + 2


def test_a_full_server_is_given_what_it_takes(opened, policy):
    """Many more requests than it takes, each longer than the first waits between tries."""
    fake = FakeVllm(Path(policy.base), takes=3, seconds=0.3)
    with serving(fake) as url:
        assert len(wave(opened("vllm", url, policy))) == WAVE
    assert fake.asked.count(fake.GENERATE) < 4 * WAVE


def test_each_server_is_compared_and_named(policy):
    with serving(FakeVllm(Path(policy.base))) as right, serving(FakeVllm(Path(policy.base), raw=True)) as wrong:
        engine = EngineSpec(name="vllm", url=(right, wrong))
        worker = Worker("cpu")
        found = worker.run(Job(request=CheckRequest(policy=policy, engine=engine)))
        worker.close()
    assert (found["where"], found["kind"]) == (wrong, "raw")
    assert found["mean"] > bound_of("float32", None).mean


def test_a_stale_server_among_others_is_refused(opened, adapted):
    with ExitStack() as stack:
        right, wrong = (stack.enter_context(serving(FakeVllm(Path(adapted.base), stale=stale))) for stale in (False, True))
        engine = opened("vllm", (right, wrong), adapted)
        with pytest.raises(DataError, match="does not hold the policy") as refused:
            engine.require(witness_of(adapted))
    assert refused.value.where == wrong


def test_a_shard_is_sampled_where_the_policy_is_held(adapted, tmp_path):
    """What a worker is told on its standard input: it compares each server by the places of the check before it samples."""
    items = [item.as_row() for item in LettersEnvironment().items("train", 2, 0)]
    worker, right, wrong = Worker("cpu"), FakeVllm(Path(adapted.base)), FakeVllm(Path(adapted.base), stale=True)
    with serving(right) as first, serving(wrong) as second:
        engine = EngineSpec(name="vllm", url=first)
        found = EngineAgreement.model_validate(worker.run(Job(request=CheckRequest(policy=adapted, engine=engine))))
        request = ShardRequest(
            policy=adapted, engine=engine, environment="letters", options={}, items=items, group_size=2, temperature=1.0,
            max_new_tokens=4, max_turns=2, seed=0, witness=Witness(places=found.places, bound=bound_of("float32", None)),
        )  # fmt: skip
        assert worker.run(_told(Job(request=request, output=str(tmp_path / "rows")))) == 4
        both = request.model_copy(update={"engine": engine.model_copy(update={"url": (first, second)})})
        with pytest.raises(DataError, match="does not hold the policy") as refused:
            worker.run(_told(Job(request=both, output=str(tmp_path / "rows"))))
        worker.close()
    assert refused.value.where == second


def _told(job: Job) -> Job:
    return Job.model_validate_json(job.model_dump_json())


def test_weights_that_vllm_exchanged_since_are_refused(opened, policy):
    fake = FakeVllm(Path(policy.base), weights="1")
    with serving(fake) as url:
        engine = opened("vllm", url, policy)
        wave(engine, 3)
        fake.weights = "2"
        with pytest.raises(DataError, match="the weights of its base model have changed"):
            wave(engine, 3)


@pytest.mark.parametrize("ails", ["other weights", "another key", "no turns"])
def test_one_that_is_not_what_it_was_is_left_out(opened, policy, ails, caplog):
    """One of two ended the night, with whose answers nothing was wrong."""
    expected = wave(open_engine(EngineSpec(), policy, "cpu"))
    sick, well = (FakeVllm(Path(policy.base), weights="1") for _ in range(2))
    with serving(sick) as first, serving(well) as second:
        engine = opened("vllm", (first, second), policy)
        engine.require(witness_of(policy))
        sick.weights = "2" if ails == "other weights" else "1"
        sick.key = "new" if ails == "another key" else ""
        sick.faults.extend([fake_vllm.short] * (1000 if ails == "no turns" else 0))
        assert wave(engine) == expected
        assert f"{first} is left out" in caplog.text


class Clock:
    """Time that passes where a test says so."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(balance, "time", clock := Clock())
    return clock


def simulated(servers: Balance, seconds: dict[str, float], clock: Clock, rows: int = 60) -> dict[str, int]:
    """Ask for all rows at once, of servers that answer one request after the other; return how many each was given."""
    free, given, ends = dict.fromkeys(seconds, clock.now), dict.fromkeys(seconds, 0), list[tuple[float, int, Any]]()
    for row in range(rows):
        place = servers.place()
        replica = place.__enter__()
        assert replica
        free[replica.url] += seconds[replica.url]
        given[replica.url] += 1
        ends.append((free[replica.url], row, (place, replica)))
    for clock.now, _, (place, replica) in sorted(ends, key=lambda end: end[:2]):
        servers.has_answered(replica)
        place.__exit__(None, None, None)
    return given


def test_servers_are_loaded_in_proportion_to_their_speeds(clock):
    seconds = {"http://fast": 0.1, "http://slow": 0.4}
    servers = Balance(list(seconds))
    assert simulated(servers, seconds, clock) == {"http://fast": 30, "http://slow": 30}  # nothing is known yet
    assert simulated(servers, seconds, clock)["http://fast"] == pytest.approx(48, abs=4)
    turned = dict(zip(seconds, reversed(seconds.values()), strict=True))
    for _ in range(4):
        given = simulated(servers, turned, clock)
    assert given["http://slow"] == pytest.approx(48, abs=6)
