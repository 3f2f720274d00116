"""The data steps of a night on rows of any number, for data_plane_rows.py: what they are given, and a function for each."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from data_plane_data import SHORT, write_sources
from pydantic import BaseModel

from clawpipe.core.config.curation import Curation
from clawpipe.core.config.generation import Difficulty
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset
from clawpipe.core.store.notes import Notes
from clawpipe.core.store.refs import DatasetRef, ModelRef
from clawpipe.data.curation import measures, partitions

_USERS = 1000
_LIMITS: dict[str, Any] = {"threads": 2, "memory": "512MB"}  # of DuckDB, as a night has them


class Rows(BaseModel):
    """Rollouts with scores and items; the same as captured conversations of a thousand users, with thumbs; and what is made of
    them."""

    store: Path
    trajectories: DatasetRef
    scores: DatasetRef
    items: DatasetRef
    captured: DatasetRef
    thumbs: DatasetRef
    samples: DatasetRef | None = None
    pairs: DatasetRef | None = None
    work: Path

    @property
    def opened(self) -> Store:
        return Store(self.store)


def write_rows(work: Path, rows: int) -> Rows:
    store = Store(work / "store")
    made = write_sources(store, rows, SHORT)
    captured = publish_dataset(store, "trajectories", _as_captured(store, made.trajectories))
    thumbs = publish_dataset(store, "scores", _as_thumbs(store, captured))
    return Rows(store=store.root, captured=captured, thumbs=thumbs, work=work, **made._asdict())


def _as_captured(store: Store, trajectories: DatasetRef) -> Iterator[pa.Table]:
    for file in dataset_files(store, trajectories):
        table = _read(file)
        users = pa.array([f"user-{number % _USERS}" for number in range(table.num_rows)])
        names = pa.array([f"talk-{name}" for name in table["trajectory_id"].to_pylist()])
        new = {"trajectory_id": names, "session_id": names, "user_id": users, "source": pa.repeat("captured", table.num_rows)}
        yield conformed(pa.table({name: new.get(name, table[name]) for name in table.column_names}), schema_of("trajectories"))


def _as_thumbs(store: Store, captured: DatasetRef) -> Iterator[pa.Table]:
    for file in dataset_files(store, captured):
        names = _read(file, ["trajectory_id"])["trajectory_id"]
        count = len(names)
        columns = {
            "trajectory_id": names,
            "turn": pa.array(np.zeros(count, np.int32)),
            "scorer": pa.repeat("imported/capture/user", count),
            "origin": pa.repeat("user", count),
            "value": pa.array(np.where(np.arange(count) % 3, 1.0, -1.0)),
            "reason": pa.repeat("", count),
            "evidence": pa.repeat("{}", count),
        }
        yield conformed(pa.table(columns), schema_of("scores"))


def _read(file: Path, columns: list[str] | None = None) -> pa.Table:
    return pq.read_table(file, columns=columns)


def scan(rows: Rows) -> object:
    files = dataset_files(rows.opened, rows.trajectories)
    return sum(batch.num_rows for file in files for batch in pq.ParquetFile(file).iter_batches(8192))


def collect(rows: Rows) -> object:
    from tasks.rollouts import collect_rollouts

    return collect_rollouts.function(chunks=[rows.trajectories])


def validated(rows: Rows) -> object:
    from clawpipe.core.contracts.validate import validate

    return [validate(rows.opened, ref, ref.name, threads=2) for ref in (rows.trajectories, rows.scores)]


def scored(rows: Rows) -> object:
    from clawpipe.play.judging.base import Score
    from clawpipe.play.judging.scoring import score_dataset

    class Always:
        name, origin = "verifier/benchmark", "verifier"

        def score(self, item: Mapping[str, Any], trajectory: Mapping[str, Any]) -> list[Score]:
            return [Score(value=1.0, success=True)]

    return score_dataset(rows.opened, rows.trajectories, rows.items, [Always()])


def compared_judges(rows: Rows) -> object:
    from tasks.data import compare_judges

    return compare_judges.function(scores=[rows.scores])


def rewards(rows: Rows) -> object:
    from clawpipe.record.tracking.rewards import round_rewards

    return round_rewards(rows.opened, [rows.scores])


def chosen_round(rows: Rows) -> object:
    from clawpipe.learn.evaluation.sampled import lengths, read_sampled

    policy = ModelRef.model_construct(policy_version="benchmark-policy")
    found = read_sampled(rows.opened, {1: policy}, [rows.trajectories], [rows.scores], rows.items)
    return found.rollouts, found.verified, lengths(rows.opened, rows.trajectories)


def drawn_items(rows: Rows) -> object:
    from clawpipe.play.rollouts.draw import draw_items

    return draw_items(rows.opened, rows.items, [(rows.trajectories, rows.scores)], Difficulty(), 1000, 0)


def agreed(rows: Rows) -> object:
    from clawpipe.play.judging.judged_scores import judged_scores
    from clawpipe.play.judging.report import agreements

    return agreements(judged_scores(rows.opened, [rows.scores]))


def queried(rows: Rows) -> object:
    from clawpipe.data.ingest.query import matching, parse_query, row_names, selected

    keep = matching(rows.opened, [rows.captured], parse_query("user = user-7 and source = captured").conditions)
    return (
        selected(rows.opened, rows.captured, keep),
        selected(rows.opened, rows.thumbs, keep),
        row_names(rows.opened, [rows.captured]),
    )


def held_out(rows: Rows) -> object:
    from clawpipe.learn.evaluation.heldout.holding import hold_out

    return hold_out(rows.opened, rows.captured, 0.1)


def drawn_conversations(rows: Rows) -> object:
    from clawpipe.learn.evaluation.heldout.conversations import draw_conversations

    return draw_conversations(rows.opened, [rows.captured], [rows.thumbs], "any", 512, 200, {})


def curated(rows: Rows, trajectories: DatasetRef, scores: DatasetRef, config: Curation, method: str) -> DatasetRef:
    from clawpipe.data.curation.runner import curate

    return curate(rows.opened, [trajectories], [scores], rows.items, config, method, **_LIMITS).dataset


def curated_grpo(rows: Rows) -> object:
    return curated(rows, rows.trajectories, rows.scores, Curation(), "grpo")


def curated_pairs(rows: Rows) -> object:
    return curated(rows, rows.trajectories, rows.scores, Curation(), "dpo")


def curated_users(rows: Rows) -> object:
    return curated(rows, rows.captured, rows.thumbs, Curation.model_validate({"credit": "turn", "level_users": True}), "grpo")


def compared_recorded(rows: Rows) -> object:
    from clawpipe.play.recorded.compare import _chosen

    assert rows.samples
    return {name: len(found) for name, found in _chosen(rows.opened, rows.samples).items()}


def read_samples(rows: Rows) -> object:
    from clawpipe.core.config.training import Train
    from clawpipe.learn.training.data.packing import plan_packs
    from clawpipe.learn.training.data.samples import load_samples

    assert rows.samples
    paths = list(map(str, dataset_files(rows.opened, rows.samples)))
    samples, filtered = load_samples(paths, Train.model_validate({"method": "grpo"}), 1.0)
    return len(samples), filtered, len(plan_packs(samples, 4096, 16, 0))


def read_pairs(rows: Rows) -> object:
    from clawpipe.learn.training.data.pairs import load_pairs, plan_pairs

    assert rows.pairs
    sides, filtered = load_pairs(list(map(str, dataset_files(rows.opened, rows.pairs))), None, 1.0)
    return len(sides), filtered, len(plan_pairs(sides, 4096, 16, 0))


def logged(rows: Rows) -> object:
    from clawpipe.record.reporting.rollout_log import write_rollout_log

    return write_rollout_log(rows.opened, rows.work / "log.txt", rows.trajectories, [rows.scores], str, 8)


def near(rows: Rows) -> object:
    from clawpipe.data.similarity.duplicates import near_duplicates, zip_signed
    from clawpipe.data.similarity.signatures import sign

    signed = sign(rows.opened, rows.captured).dataset
    return near_duplicates(rows.opened, zip_signed([rows.captured], [signed]), **_LIMITS)


def near_questions(rows: Rows) -> object:
    from clawpipe.core.config.curation import Near
    from clawpipe.data.similarity.heldout import near_heldout

    return near_heldout(rows.opened, rows.captured, rows.items, Near())


def found_to_forget(rows: Rows) -> object:
    from clawpipe.core.store.rewrite import without_rows
    from clawpipe.data.forgotten.find import find
    from clawpipe.data.forgotten.subject import Subject

    found = find(rows.opened, Subject(user="user-7"))
    return [without_rows(rows.opened, hit.ref, hit.rows) for hit in found.hits]


def traced(rows: Rows) -> object:
    from clawpipe.record.lineage.record import Node
    from clawpipe.record.lineage.trace import _items, _sources, _used
    from clawpipe.record.lineage.traced import Dataset

    assert rows.samples
    used = _used(rows.opened, Node(id=rows.samples.digest, kind="dataset", name="samples"))
    taught = {name for names in (used or {}).values() for name in names}
    of = {
        name: [Dataset(name=name, digest=ref.digest, rows=ref.rows)]
        for name, ref in (("task_items", rows.items), ("trajectories", rows.trajectories))
    }
    items, _ = _items(rows.opened, of["task_items"], set(used or {}))
    return len(items), len(_sources(rows.opened, of["trajectories"], taught))


def ingested(rows: Rows) -> object:
    from clawpipe.core.store.home import Home
    from clawpipe.data.ingest.intake.options import Options
    from clawpipe.data.ingest.intake.run import ingest

    return ingest(Home(rows.work / "home"), [str(rows.work / "lines.jsonl")], Options(format="auto")).datasets


STEPS: dict[str, Callable[[Rows], object]] = {
    "scan": scan,
    "ingest": ingested,
    "query": queried,
    "hold_out": held_out,
    "draw_conversations": drawn_conversations,
    "collect_rollouts": collect,
    "draw_items": drawn_items,
    "validate": validated,
    "score": scored,
    "compare_judges": compared_judges,
    "agreements": agreed,
    "rewards": rewards,
    "rollout_log": logged,
    "near_duplicates": near,
    "near_heldout": near_questions,
    "curate": curated_grpo,
    "curate_pairs": curated_pairs,
    "curate_level_users": curated_users,
    "check_recorded": compared_recorded,
    "train_reader": read_samples,
    "train_reader_pairs": read_pairs,
    "choose_round": chosen_round,
    "trace": traced,
    "forget": found_to_forget,
}


def prepared(work: Path, rows: int, asked: Collection[str]) -> Rows:
    print(f"writing {rows} trajectories", file=sys.stderr, flush=True)
    made = write_rows(work, rows)
    more: dict[str, Any] = {}
    if {"check_recorded", "train_reader", "trace"} & set(asked):
        more["samples"] = curated_grpo(made)
    if "train_reader_pairs" in asked:
        more["pairs"] = curated_pairs(made)
    if "ingest" in asked:
        from data_plane_ingest import write_lines

        write_lines(dataset_files(made.opened, made.trajectories), work / "lines.jsonl")
    for kind in (measures.NAME, partitions.NAME):  # so that nothing is kept of it but the datasets
        shutil.rmtree(Notes(made.opened, kind).directory, ignore_errors=True)
    return made.model_copy(update=more)
