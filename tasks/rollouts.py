"""Step generate_rollouts: generate chunks of rollouts, and join them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow.compute as pc

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.config.generation import Difficulty
from clawpipe.core.config.night import Generation, Played, Runtime
from clawpipe.core.contracts.sampled import FAILED, PART, failed_with
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_batches, dataset_files, publish_files
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.model.policy.spec import policy_spec
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.environments.several import open_environments
from clawpipe.play.rollouts.demonstrations import demonstrate as play_demonstrations
from clawpipe.play.rollouts.draw import draw_items as draw
from clawpipe.play.rollouts.generate import Chunk
from clawpipe.play.rollouts.generate import generate_chunk as generate
from clawpipe.play.workers.pool import open_workers
from clawpipe.record.nights.files import run_dir
from clawpipe.record.reporting.rollout_log import write_rollout_log
from tasks.step import step


@step(anywhere=True)
def generate_chunk(
    items: DatasetRef,
    policy: ModelRef,
    environment: Played,
    config: Generation,
    chunk: Chunk,
    seed: int,
    runtime: Runtime,
) -> StepResult:
    """Generate rollouts of some train items."""
    home = Home.from_env()
    with open_workers(runtime, home.logs) as pool:
        return generate(open_store(home), pool, home.work, items, policy, environment, config, chunk, seed)


@step()
def draw_items(
    items: DatasetRef,
    tried: list[DatasetRef],
    scores: list[DatasetRef],
    earlier: list[DatasetRef],
    config: Difficulty,
    count: int,
    seed: int,
) -> StepResult:
    """Draw a round's items by their pass rates in earlier rounds, whose rollouts and scores are given newest first; `earlier` are
    the items that earlier nights drew, for their levels."""
    pairs = list(zip(tried, scores, strict=True))
    return draw(open_store(Home.from_env()), items, pairs, config, count, seed, earlier)


@step()
def demonstrate(trajectories: list[DatasetRef], scores: list[DatasetRef], items: DatasetRef, environment: Played) -> StepResult:
    """Play the environment's demonstrations of the items that no rollout of the round solved."""
    with open_environments(environment) as played:
        return play_demonstrations(open_store(Home.from_env()), trajectories, scores, items, played)


@step(cached=False)
def log_rollouts(night: str, file: str, rollouts: DatasetRef, scores: list[DatasetRef], policy: ModelRef, count: int) -> StepResult:
    """Write some rollouts of the round as text into a file of the night's logs."""
    home, store = Home.from_env(), open_store(Home.from_env())
    tokenizer = load_tokenizer(Path(policy_spec(store, policy).base))

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False))

    path = run_dir(home, night) / "logs" / file
    written = write_rollout_log(store, path, rollouts, scores, decode, count)
    return StepResult(details={"file": f"logs/{file}", "rollouts": written})


@step()
def collect_rollouts(chunks: list[DatasetRef]) -> StepResult:
    """Join the shards of all chunks into one dataset; files are linked, not copied."""
    store = open_store(Home.from_env())
    files = [file for chunk in chunks for file in dataset_files(store, chunk)]
    output = publish_files(store, "trajectories", files, parents=[parent for chunk in chunks for parent in chunk.parents])
    details = _sampled_by(store, output) | _sampled_tokens(store, output) | _failed_programs(store, output)
    return StepResult(output=output, rows_in=sum(chunk.rows for chunk in chunks), rows_out=output.rows, details=details)


def _sampled_by(store: Store, rollouts: DatasetRef) -> JsonObject:
    """Return which engines sampled, as details of a step: how many rows each; nothing for the embedded engine, which is known."""
    counts: Counter[str] = Counter()
    for batch in dataset_batches(store, rollouts, ["extra"]):
        for found in pc.value_counts(batch["extra"].drop_null()).to_pylist():  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
            if engine := json.loads(found["values"]).get("engine"):
                counts[json.dumps(engine, sort_keys=True)] += found["counts"]
    return {"sampled_by": [json.loads(text) | {"rows": rows} for text, rows in sorted(counts.items())]} if counts else {}


def _sampled_tokens(store: Store, rollouts: DatasetRef) -> JsonObject:
    """Return the number of sampled tokens; nothing where an engine gave text only."""
    masks = (batch["loss_mask"] for batch in dataset_batches(store, rollouts, ["loss_mask"]))
    sampled = sum(pc.sum(pc.list_flatten(mask)).as_py() or 0 for mask in masks)  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
    return {"sampled_tokens": sampled} if sampled else {}


def _failed_programs(store: Store, rollouts: DatasetRef) -> JsonObject:
    """Return a warning about programs that played, and failed by themselves after they were answered; nothing if none did."""
    codes = Counter[int]()
    for batch in dataset_batches(store, rollouts, ["verdict", "extra"]):
        said = pc.match_substring(batch["verdict"], f'"{FAILED}"')  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
        rows = batch.filter(said).to_pylist()  # a null drops its row
        codes.update(filter(None, (failed_with(row) for row in rows if not _is_further(row))))
    listed = ", ".join(f"{count} x exit code {code}" for code, count in codes.most_common())
    told = (
        f"the program failed by itself in {codes.total()} episodes, which are judged as they are ({listed}); worker-*.log in the "
        "night's logs says what it wrote last"
    )
    return {"warnings": [told]} if codes else {}


def _is_further(row: Row) -> bool:
    """Whether a row is a further one of its episode."""
    return bool(row["extra"]) and PART in json.loads(row["extra"])
