"""The loop of a generation process. It reads one JSON job per line, and answers each with a JSON object on a line: {"ok": ...} or
{"error": ..., "exit_code": N}. It keeps the last policy loaded, so that the shards of a round pay for one load. Ends when its
standard input does.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import orjson
import pyarrow as pa
import torch

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.config.environment import EnvironmentSpec
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.conversation.messages import Message, ToolCallFormat
from clawpipe.core.store.datasets import write_parquet
from clawpipe.core.system import faults
from clawpipe.core.system.machine import as_clawpipe_error
from clawpipe.errors import ClawpipeError
from clawpipe.model.engines.base import (
    ENGINES,
    Closes,
    Described,
    Engine,
    HoldsModel,
    OnServers,
    Remembers,
    Sampling,
    Scores,
    open_engine,
)
from clawpipe.model.policy.agreement import EngineAgreement
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.load import load_policy, resolve_device
from clawpipe.model.policy.probe import Probe, probe_at, probe_for, runs
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.model.policy.template import open_renderer
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.discovery import PLAYERS
from clawpipe.play.environments.play import Plays
from clawpipe.play.environments.several import open_world
from clawpipe.play.workers.chats import chat_episodes, endpoint_rows
from clawpipe.play.workers.compare import COOL, compare_engine, compare_with_itself, places_of
from clawpipe.play.workers.episodes import EpisodeLimits, run_episodes, trajectory_rows
from clawpipe.play.workers.merge import divergences, merge
from clawpipe.play.workers.request import (
    AnswerRequest,
    CheckRequest,
    DivergenceRequest,
    Job,
    MergeRequest,
    ResolveRequest,
    ScoreRequest,
    ShardRequest,
    turns_of,
)

_EMBEDDED = EngineSpec()


class Worker:
    """Answers requests with one loaded policy at a time, on one device."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._loaded: tuple[PolicySpec, EngineSpec, Engine] | None = None
        self._played: _Played | None = None

    def run(self, job: Job) -> Any:
        match job.request:
            case ResolveRequest(name=name):
                resolve_base(name)
                return None
            case ScoreRequest() as request:
                return self._scoring(request.policy).score(request.ids, request.start, request.temperature)
            case AnswerRequest() as request:
                return self._answer(request)
            case CheckRequest(policy=policy, engine=engine):
                return self._check(policy, engine)
            case MergeRequest(policy=policy):
                assert job.output
                assert policy.adapter
                self.release()  # merging takes a model's memory as well
                return merge(Path(policy.base), Path(policy.adapter), policy.dtype, Path(job.output))
            case DivergenceRequest() as request:
                return divergences(self._scoring, request.reference, request.others, request.contexts)
            case ShardRequest() as request:
                assert job.output
                return self._shard(request, Path(job.output))

    def _shard(self, request: ShardRequest, output: Path) -> int:
        with self._remembering(request, turns_of(output)):
            rows = self._rows(request)
        faults.kill_point("rollouts.before_write")
        write_parquet(pa.Table.from_pylist(rows, schema=schema_of("trajectories")), output)
        return len(rows)

    @contextmanager
    def _remembering(self, request: ShardRequest, turns: Path) -> Iterator[None]:
        """Let an engine whose turns cost money keep those of a shard, so that a killed one does not pay for them again."""
        engine = self._engine(request.policy, request.engine) if request.engine.is_service else None
        if not isinstance(engine, Remembers):
            yield
            return
        engine.remember(turns)
        try:
            yield
        finally:
            engine.remember(None)

    def _rows(self, request: ShardRequest) -> list[Row]:
        if request.environment in PLAYERS.built_in and not request.engine.is_endpoint:
            engine = self._sampler(request)
            return PLAYERS.load(request.environment)(request, self._environment(request), engine)
        return self._from_endpoint(request) if request.engine.is_endpoint else self._recorded(request)

    def _from_endpoint(self, request: ShardRequest) -> list[Row]:
        """Roll out with the model of an endpoint."""
        environment = self._environment(request)
        tasks = [(TaskItem.from_row(row), index) for row in request.items for index in range(request.group_size)]
        with ENGINES.load(request.engine.name).at(request.engine, request.temperature, request.max_new_tokens) as model:
            episodes = list(chat_episodes(model, environment, tasks, request.max_turns, request.seed))
            return list(endpoint_rows(episodes, model, request.seed))

    def _recorded(self, request: ShardRequest) -> list[Row]:
        """Roll out with the policy, and record every token."""
        environment = self._environment(request)
        renderer = _renderer(request.policy.base, request.policy.tool_call_format, environment)
        engine = self._sampler(request)
        limits = EpisodeLimits(request.temperature, request.max_new_tokens, request.max_turns, engine.context)
        items = [TaskItem.from_row(row) for row in request.items]
        shown = request.prompts or [row["messages"] for row in request.items]
        prompts = [[Message.from_dict(message) for message in prompt] for prompt in shown]
        rollouts = run_episodes(
            engine, renderer, environment, items, request.group_size, limits, request.seed, prompts, request.waves
        )
        described = engine.described if isinstance(engine, Described) else None
        return list(trajectory_rows(rollouts, request.policy.policy_version, renderer.digest, request.temperature, described))

    def _sampler(self, request: ShardRequest) -> Engine:
        """Return the engine of a shard, whose servers are known to hold the policy."""
        engine = self._engine(request.policy, request.engine)
        if request.witness and isinstance(engine, OnServers):
            engine.require(request.witness)
        return engine

    def _environment(self, request: ShardRequest) -> Plays:
        """Return the environment of a request: the last one, or a new one."""
        wanted = request.played, request.label
        if self._played is None or self._played.wanted != wanted:
            self._leave()
            ending = ExitStack()
            self._played = _Played(wanted, ending.enter_context(open_world(*wanted)), ending)
        return self._played.environment

    def _leave(self) -> None:
        """End the processes that the last environment runs in, if any."""
        if self._played:
            self._played.ending.close()
        self._played = None

    def _answer(self, request: AnswerRequest) -> list[list[int]]:
        """Return the tokens of each answer, the end-of-turn token included."""
        conversations = self._engine(request.policy).begin(request.prompts)
        greedy = Sampling(0.0, request.max_new_tokens, request.stop_ids)
        answers = conversations.sample(dict.fromkeys(range(len(request.prompts)), 0), greedy)
        return [answers[row].ids for row in range(len(request.prompts))]

    def _check(self, policy: PolicySpec, spec: EngineSpec) -> JsonObject:
        with runs("engine", policy.base):
            engine = self._engine(policy, spec)
            if policy.elsewhere:
                return compare_with_itself(engine, probe_at(Path(policy.base))).model_dump(mode="json")
            model = engine.model if isinstance(engine, HoldsModel) else _load(policy, self._device)
            probe, temperature = probe_for(model, Path(policy.base)), 1.0 if spec.is_service else COOL
            if isinstance(engine, OnServers):
                return _farthest(engine, model, probe).model_dump(mode="json")
            return compare_engine(engine, model, probe, temperature).model_dump()

    def _scoring(self, policy: PolicySpec) -> Scores:
        """Return the embedded engine, which scores all given tokens, with the policy."""
        return cast(Scores, self._engine(policy))

    def _engine(self, policy: PolicySpec, spec: EngineSpec = _EMBEDDED) -> Engine:
        """Return an engine with the policy: the last one, or a new one."""
        if self._loaded is None or self._loaded[:2] != (policy, spec):
            self.release()  # free the old weights first
            self._loaded = (policy, spec, open_engine(spec, policy, self._device))
        return self._loaded[2]

    def release(self) -> None:
        """Forget the loaded policy, here and at the servers that hold it."""
        if self._loaded and isinstance(self._loaded[2], Closes):
            self._loaded[2].close()
        self._loaded = None

    def close(self) -> None:
        """End what runs for this worker: environments, and the policy that servers hold."""
        self._leave()
        self.release()


def _farthest(servers: OnServers, model: Any, probe: Probe) -> EngineAgreement:
    """Compare each server, and return the figures of the one that is farthest off."""
    found = [(compare_engine(server, model, probe), url) for url, server in servers.each().items()]
    figures, url = max(found, key=lambda one: one[0].mean)
    return EngineAgreement(**figures.model_dump(), places=places_of(model, probe), where=url)


def _load(policy: PolicySpec, device: str) -> Any:
    adapter = Path(policy.adapter) if policy.adapter else None
    return load_policy(Path(policy.base), adapter, policy.dtype, resolve_device(device), policy.quantization)


class _Played(NamedTuple):
    """An open environment, what it was asked for by, and what ends it."""

    wanted: tuple[EnvironmentSpec, str | None]
    environment: Plays
    ending: ExitStack


@lru_cache(maxsize=1)
def _renderer(base: str, tool_call_format: ToolCallFormat, environment: Plays) -> Renderer:
    """Return a renderer of an environment's tools for a model's tokenizer."""
    return open_renderer(load_tokenizer(Path(base)), tool_call_format, environment.tools())


def serve(device: str, threads: int) -> None:
    """Answer jobs until standard input ends."""
    torch.set_num_threads(threads)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints belongs in the log, not among the answers
    worker = Worker(device)
    signal.signal(signal.SIGTERM, lambda *_: _end(worker))
    for line in sys.stdin.buffer:
        answers.write(orjson.dumps(_answer(worker, line)) + b"\n")
    worker.close()


def _end(worker: Worker) -> None:
    """End as SIGTERM ends a process, after giving back what servers hold."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    worker.close()
    os.kill(os.getpid(), signal.SIGTERM)


def _answer(worker: Worker, line: bytes) -> JsonObject:
    try:
        return {"ok": worker.run(Job.model_validate_json(line))}
    except ClawpipeError as error:
        return {"error": error.as_dict()}
    except torch.OutOfMemoryError as error:
        return {
            "error": {"error": "BusyError", "what": f"out of memory: {error}", "where": "", "fix": "lower rollouts.shard_rollouts"}
        }
    except Exception as error:
        known = as_clawpipe_error(error)
        if known is None:
            raise
        traceback.print_exc()  # into the log
        return {"error": known.as_dict()}
