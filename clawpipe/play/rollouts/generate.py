"""Generate the rollouts of a round: chunk by chunk, each in shards; a shard that lies on disk is not generated again."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import accumulate, chain, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.config.environment import EnvironmentSpec, Played
from clawpipe.core.config.generation import Generation, Rollouts
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_batches, publish_dataset, publish_files, rows_at
from clawpipe.core.store.digests import canonical, sha256_file, sha256_json
from clawpipe.core.store.files import exclusive, fsync
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.core.store.source import code_digest
from clawpipe.core.system import faults
from clawpipe.errors import DataError
from clawpipe.model.engines.base import ENGINES
from clawpipe.model.engines.witness import Witness
from clawpipe.model.policy.agreement import OTHER_SERVER, Bound, EngineAgreement, bound_of, coarser, require_agreement
from clawpipe.model.policy.spec import PolicySpec, policy_spec
from clawpipe.play.environments.discovery import inputs_digest, source_digest
from clawpipe.play.environments.named_files import digests_named
from clawpipe.play.environments.several import Named, named
from clawpipe.play.workers.pool import WorkerPool
from clawpipe.play.workers.request import CheckRequest, Job, ShardRequest, turns_of

_AGREED: dict[str, Witness | None] = {}  # policies on servers that this process has seen to be right, and how they are known


class Chunk(BaseModel):
    """The part of a round that one task generates."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ordinals: tuple[int, ...] = Field(description="places of its own train items among all")
    together: tuple[int, ...] = Field(description="those of train items that are generated in the same batches")


def round_items(available: Sequence[int], wanted: Sequence[Sequence[int]], number: int, seed: int) -> list[int]:
    """Return the places of the train items of round `number` (from 0): of each environment the next ones in the night's order,
    which wraps around.

    Args:
        available: train items of each environment, which lie one environment after the other.
        wanted: for each round, how many of each environment.
    """
    chosen: list[int] = []
    for place, (start, count) in enumerate(zip(accumulate([0, *available[:-1]]), available, strict=True)):
        order = list(range(start, start + count))
        random.Random(seed).shuffle(order)
        before = sum(one[place] for one in wanted[:number])
        chosen += [order[(before + turn) % count] for turn in range(wanted[number][place])]
    return chosen


def split_evenly(ordinals: Sequence[int], parts: int) -> list[tuple[int, ...]]:
    """Return at most `parts` contiguous pieces whose sizes differ by at most one, whatever the number of workers."""
    parts = min(parts, len(ordinals))
    bounds = [len(ordinals) * part // parts for part in range(parts + 1)]
    return [tuple(ordinals[start:end]) for start, end in pairwise(bounds)]


def plan_chunks(ordinals: Sequence[int], config: Rollouts) -> list[Chunk]:
    """Return the chunks of a round.

    Small chunks are generated together, up to a shard of rollouts at a time: a batch of 64 rows takes little longer than one of 8.
    The ordinals alone decide which are generated together, so the bits do not depend on the workers.
    """
    parts = split_evenly(ordinals, config.chunks)
    at_once = max(config.shard_rollouts // (config.group_size * max(map(len, parts))), 1)
    batches = [parts[start : start + at_once] for start in range(0, len(parts), at_once)]
    return [Chunk(ordinals=part, together=tuple(chain.from_iterable(batch))) for batch in batches for part in batch]


def generate_chunk(
    store: Store,
    pool: WorkerPool,
    work: Path,
    items: DatasetRef,
    policy: ModelRef,
    environment: Played,
    config: Generation,
    chunk: Chunk,
    seed: int,
) -> StepResult:
    """Generate the rollouts of a chunk's train items, with those of other chunks of its batch, and keep the chunk's own."""
    wanted = {row["item_id"] for row in item_rows(store, items, "train", chunk.ordinals)}
    rows = item_rows(store, items, "train", chunk.together)
    shards = generate_shards(store, pool, work, rows, policy, environment, config, seed)
    together = pa.concat_tables([pq.read_table(shard) for shard in shards])
    own = together.filter(pc.field("item_id").isin(wanted))
    output = publish_dataset(store, "trajectories", [own], parents=[items.digest, policy.digest])
    return StepResult(output=output, rows_in=len(wanted) * config.group_size, rows_out=output.rows)


def generate_shards(
    store: Store,
    pool: WorkerPool,
    work: Path,
    rows: Sequence[Row],
    policy: ModelRef,
    environment: Played,
    config: Generation,
    seed: int,
    prompts: Sequence[list[JsonObject]] | None = None,
) -> list[Path]:
    """Roll out task items; return one Parquet file per shard, each of one environment, one environment after the other, in the
    order of its items. `prompts`: see `ShardRequest`.

    Shards are kept below `work` under the digest of what they hold until the night ends, so that another try, in another
    process, finds them.
    """
    spec = policy_spec(store, policy)
    inputs = {one.label: _inputs(one.spec, config.engine) for one in named(environment)}
    requests: list[tuple[ShardRequest, list[str]]] = []
    for one, places in shards_of(rows, environment, config):
        shown = [prompts[place] for place in places] if prompts else None
        requests.append((_request(spec, one, config, [rows[place] for place in places], shown, seed), inputs[one.label]))
    with ThreadPoolExecutor(pool.size) as threads:
        return list(threads.map(lambda asked: _shard(pool, work, *asked), requests))


def _inputs(environment: EnvironmentSpec, engine: EngineSpec) -> list[str]:
    """Return the digests of what options name: files, task folders, images and programs."""
    return [inputs_digest(environment.name, environment.options), *digests_named([environment.options, engine.options])]


def shards_of(rows: Sequence[Row], environment: Played, config: Generation) -> Iterator[tuple[Named, list[int]]]:
    """Yield the environment of each shard, and the places of its items among the rows."""
    per_shard = max(config.shard_rollouts // config.group_size, 1)
    for one in named(environment):
        own = [place for place, row in enumerate(rows) if not one.labelled or row["environment"] == one.label]
        yield from ((one, own[start : start + per_shard]) for start in range(0, len(own), per_shard))


def roll_out(
    store: Store,
    pool: WorkerPool,
    work: Path,
    items: DatasetRef,
    split: str,
    ordinals: Sequence[int],
    policy: ModelRef,
    environment: Played,
    config: Generation,
    seed: int,
) -> DatasetRef:
    """Roll out the task items at these places of a split; the trajectories have a file for each shard."""
    shards = generate_shards(store, pool, work, item_rows(store, items, split, ordinals), policy, environment, config, seed)
    return publish_files(store, "trajectories", shards, parents=[items.digest, policy.digest])


def _request(
    policy: PolicySpec, one: Named, config: Generation, items: list[Row], prompts: list[list[JsonObject]] | None, seed: int
) -> ShardRequest:
    return ShardRequest(
        policy=policy,
        engine=config.engine,
        environment=one.spec.name,
        options=one.spec.options,
        call_timeout=one.spec.call_timeout,
        python=one.spec.python,
        label=one.label if one.labelled else None,
        items=items,
        prompts=prompts,
        group_size=config.group_size,
        temperature=config.temperature,
        max_new_tokens=config.max_new_tokens,
        max_turns=config.max_turns,
        waves=config.waves,
        seed=seed,
    )


def item_rows(store: Store, items: DatasetRef, split: str, ordinals: Sequence[int]) -> list[Row]:
    """Return the task items at these places of a split, in the order of the places."""
    splits = [batch["split"] for batch in dataset_batches(store, items, ["split"])]
    places = np.flatnonzero(
        np.concatenate([np.empty(0, bool), *(column.to_numpy(zero_copy_only=False) == split for column in splits)])
    )
    if missing := [ordinal for ordinal in ordinals if ordinal >= len(places)]:
        raise DataError(f"the task items hold no {split} item number {missing[0]}", items.digest)
    wanted = sorted(set(ordinals))
    found = dict(zip(wanted, rows_at(store, items, places[wanted].tolist()), strict=True))  # a few items of perhaps a million
    return [found[ordinal] for ordinal in ordinals]


def _shard(pool: WorkerPool, work: Path, request: ShardRequest, inputs: list[str]) -> Path:
    """Return the shard's file: a finished one whose bytes have the digest in its name, or a new one.

    Args:
        inputs: digests of what the options of environment and engine name.
    """
    extensions = source_digest(request.environment, request.python), ENGINES.source_digest(request.engine.name)
    code = code_digest(__name__), *extensions  # of an unfinished step that was edited, no shard is taken
    content = request.model_dump(exclude={"policy", "engine", "witness"}) | {"engine": canonical(request.engine), "code": code}
    content |= {"policy_version": request.policy.policy_version, "inputs": inputs}
    directory = work / "shards" / sha256_json(content)[:24]
    with exclusive(directory.with_suffix(".lock"), "the shard", wait=True):  # whoever comes second finds it
        for finished in directory.glob("*.parquet"):
            if sha256_file(finished) == finished.stem:
                return finished
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        fresh = directory / "fresh"
        witness = require_engine(pool, request.policy, request.engine)
        rows = pool.run(Job(request=request.model_copy(update={"witness": witness}), output=str(fresh)))
        assert pq.read_metadata(fresh).num_rows == rows
        fsync(fresh)
        faults.kill_point("rollouts.before_rename")
        final = directory / f"{sha256_file(fresh)}.parquet"
        fresh.rename(final)
        turns_of(fresh).unlink(missing_ok=True)
        return final


def require_engine(pool: WorkerPool, policy: PolicySpec, engine: EngineSpec) -> Witness | None:
    """Raise if a server's log-probs of this policy differ from the model's own; return by what servers are known that come later.

    Each process checks a policy once, before it samples: an earlier check says nothing about the weights that the server holds now.

    Raises:
        DataError: the log-probs differ by more than the server's precision explains.
    """
    if not engine.is_policy_server:
        return None
    asked = sha256_json([policy.model_dump(), engine.model_dump(mode="json")])
    with _maker(asked):
        if asked not in _AGREED:
            found = EngineAgreement.model_validate(pool.run(Job(request=CheckRequest(policy=policy, engine=engine))))
            where, bound = found.where or ", ".join(engine.url) or engine.name, engine_bound(policy, engine)
            require_agreement(found, bound, where, OTHER_SERVER)
            _AGREED[asked] = Witness(places=found.places, bound=bound) if found.places else None
        return _AGREED[asked]


def engine_bound(policy: PolicySpec, engine: EngineSpec) -> Bound:
    """Return how far an engine's log-probs may be from those of the policy."""
    return bound_of(coarser(engine.computes_in(policy.dtype), policy.dtype), policy.quantization)


@cache
def _maker(what: str) -> threading.Lock:
    return threading.Lock()
