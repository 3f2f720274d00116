"""Curation: scored trajectories become samples or preference pairs to train on.

First clawpipe.data.curation.measures computes what the steps need of tokens and messages, once for each dataset. Then each
partition runs through the steps (clawpipe.data.curation.steps), unless an earlier night kept its result, and the results are
joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from clawpipe.core.basics.json_types import JsonObject, Options
from clawpipe.core.config.curation import Curation
from clawpipe.core.config.methods import METHODS
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset, publish_files, read_dataset
from clawpipe.core.store.keys import part_key, step_key
from clawpipe.core.store.notes import Note, Notes
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.core.store.source import code_digest
from clawpipe.core.store.spread import in_parts
from clawpipe.core.system import faults
from clawpipe.data.curation.counts import Decided, summed, together, with_means
from clawpipe.data.curation.joined_tables import stored_tables
from clawpipe.data.curation.measures import measured
from clawpipe.data.curation.partitions import NAME, Partition, partitions, stays_within_groups, whole_partition
from clawpipe.data.curation.settings import idle_steps, parameters, wants
from clawpipe.data.curation.steps import decide, step_names
from clawpipe.errors import ConfigError, DataError

_BEYOND_ALL = 2**40  # files


@dataclass(frozen=True)
class Question:
    """What is asked of each partition: the inputs of curation that do not depend on the rows."""

    items: DatasetRef
    earlier_items: tuple[DatasetRef, ...]
    config: Curation
    method: str
    parameters: Options  # of the method and the night, besides the settings
    near: tuple[DatasetRef, ...]
    idle: tuple[str, ...]  # steps
    threads: int | None
    memory: str | None


def curate(
    store: Store,
    trajectories: Sequence[DatasetRef],
    scores: Sequence[DatasetRef],
    items: DatasetRef,
    config: Curation,
    method: str,
    *,
    weights: tuple[float, float] = (1.0, 0.0),
    hint: str = "text",
    versions: Sequence[str] = (),
    near: Sequence[DatasetRef] = (),
    earlier: int = 0,
    earlier_items: Sequence[DatasetRef] = (),
    normalise: str = "token",
    threads: int | None = None,
    memory: str | None = None,
) -> StepResult:
    """Make the training rows of a method: filtered, decontaminated against held-out `items`, with advantages, rewards or in pairs.

    The result may be empty; the counts in `details["steps"]` show why.

    Args:
        weights: of the reward term and of the teacher term, as clawpipe.learn.training.methods.weights_of returns them; grpo, opd
            and combine keep a row if a term with a weight above 0 applies to it.
        hint: form of hindsight for the teacher, "text" or "demonstration"; a row without it has no hint.
        versions: policy versions, the newest first, from which age is counted; see `config.needs_versions`.
        near: narrow tables about trajectories that steps read by name, in the layouts of
            clawpipe.data.curation.joined_tables.LAYOUTS; an absent one is empty.
        earlier: how many of the trajectory datasets, the last ones, are replayed from earlier nights.
        earlier_items: the task items of those, which say their slices.
        normalise: what the loss is a mean of, as `train.loss.normalise`; kto's is of rows.
        memory: limit of DuckDB's buffers, such as "512MB"; None takes half of the machine's memory.

    Returns:
        output: partition after partition (clawpipe.data.curation.partitions) `samples`, ordered by group, rollout index and id; for
        dpo `preference_pairs`, ordered by group, margin (largest first) and ids. filtered counts trajectories, so that rows_in ==
        rows_out + sum(filtered); for dpo rows_in == details["paired"] + sum(filtered), where a trajectory of which no pair was
        kept counts as filtered, "in no pair".
        extras: "quarantine", which captured trajectories were filtered, with the reason, if any were; the rows themselves stay
        where they are.
        details: steps (name, unit, rows_in, rows_out, filtered), groups, and where there are rows reward_mean, success_rate (of
        every scored trajectory but demonstrations and what is replayed), tokens, trained_tokens, demonstrations, older_policies
        (rows of others than the newest); slices (rows and share of the loss) if they are weighed; for dpo also
        groups_without_success and groups_without_failure.

    Raises:
        ConfigError: unknown method, no versions although the settings need them, or tables that do not fit into `memory`.
        DataError: unknown tables, no dataset of trajectories or of scores, or a damaged one.
    """
    _check(config, method, versions, {"trajectories": trajectories, "scores": scores})
    of_method = {"method": method, "w_rl": weights[0], "w_opd": weights[1], "hint": hint, "versions": list(versions)}
    of_method["row_means"] = row_means = METHODS[method].labels or (normalise == "sequence" and not METHODS[method].pairs)
    of_method["replayed_from"] = replayed_from = _first_file(store, trajectories, earlier)
    of_method["imitated_from"] = replayed_from if METHODS[method].uses_ratios else _BEYOND_ALL
    idle = tuple(sorted(idle_steps(config, {ref.name for ref in near}, row_means)))
    question = Question(items, tuple(earlier_items), config, method, of_method, tuple(near), idle, threads, memory)
    with _memory_errors(memory):
        narrow = measured(store, trajectories, wants(config, method), threads, memory)
        made = _decide_all(store, question, whole_partition(store, trajectories, narrow, scores))
    parents = [ref.digest for ref in (*trajectories, *scores, items, *earlier_items)]
    result = _result(_joined(store, [one.output for one in made], parents), made)
    return result.model_copy(update={"extras": _left_out(store, [one.left_out for one in made if one.left_out], parents)})


def _first_file(store: Store, trajectories: Sequence[DatasetRef], earlier: int) -> int:
    """Return the index of the first file of the last `earlier` datasets, among those of all: beyond all files if there are none."""
    return sum(len(dataset_files(store, ref)) for ref in trajectories[: len(trajectories) - earlier]) if earlier else _BEYOND_ALL


def _check(config: Curation, method: str, versions: Sequence[str], given: Mapping[str, Sequence[DatasetRef]]) -> None:
    if method not in METHODS:
        raise ConfigError(f"no curation for method {method!r}", "train.method", f"one of {', '.join(METHODS)}")
    if config.needs_versions and not versions:
        raise ConfigError("curation does not know which policy version is the newest", "curation", "hand it the versions")
    if missing := [name for name, refs in given.items() if not refs]:
        raise DataError(f"curation needs at least one dataset of {missing[0]}")


@contextmanager
def _memory_errors(memory: str | None) -> Iterator[None]:
    """Raise ConfigError if DuckDB runs out of memory, also inside a reader of pyarrow."""
    try:
        yield
    except (duckdb.OutOfMemoryException, OSError) as error:
        if "Out of Memory Error" not in str(error):
            raise
        what = f"tables do not fit into {memory or 'half of the memory'}: {str(error).partition(chr(10))[0]}"
        raise ConfigError(what, "runtime.curation_memory", "give them more, such as 1GB") from error


def _decide_all(store: Store, question: Question, whole: Partition) -> list[Decided]:
    """Run the steps partition by partition if they allow it, else on all rows."""
    if not stays_within_groups(question.config, question.method, set(step_names(question.method)).difference(question.idle)):
        return list(in_parts(store, decide_partition, [{"question": question, "partition": whole}]))
    apart = partitions(store, whole, question.method, question.threads, question.memory)
    asked = {"items": question.items, "config": question.config, **question.parameters}
    key = step_key(NAME, asked, code_digest(__name__))
    return _decide_or_recall(store, question, {_part_key(key, partition): partition for partition in apart})


def _part_key(key: str, partition: Partition) -> str:
    refs = [row_range.trajectories for row_range in partition.row_ranges]
    scores = list(dict.fromkeys(one.scores.digest for one in partition.scores))
    return part_key(key, refs, [row_range.bounds for row_range in partition.row_ranges], scores)


def _decide_or_recall(store: Store, question: Question, apart: Mapping[str, Partition]) -> list[Decided]:
    """Return the result of each partition, by its key: the kept one if its inputs are still stored, or a new one, which is kept."""
    notes = Notes(store, NAME)
    found = {key: kept for key, partition in apart.items() if (kept := _recall(store, notes, key, _inputs(question, partition)))}
    new = {key: partition for key, partition in apart.items() if key not in found}
    calls = [{"question": question, "partition": partition} for partition in new.values()]
    for key, decided in zip(new, in_parts(store, decide_partition, calls), strict=True):
        faults.kill_point("partitions.before_note")
        notes.keep(key, Note(dataset=decided.output, details=decided.model_dump(exclude={"output"})))
        found[key] = decided
    return [found[key] for key in apart]


def _inputs(question: Question, partition: Partition) -> list[DatasetRef]:
    return [*(row_range.trajectories for row_range in partition.row_ranges), question.items]


def _recall(store: Store, notes: Notes, key: str, inputs: Sequence[DatasetRef]) -> Decided | None:
    note = notes.recall(key) if all(map(store.has, inputs)) else None
    if note is None:
        return None
    decided = Decided(output=note.dataset, **note.details)
    return decided if decided.left_out is None or store.intact(decided.left_out) else None


def decide_partition(store: Store, question: Question, partition: Partition) -> Decided:
    """Run the steps on one partition."""
    config, tables = question.config, stored_tables(store, question.near)
    settings = {**question.parameters, **wants(config, question.method), **parameters(config)}
    return decide(
        *(store, partition, question.items, question.earlier_items, question.method, settings, question.idle),
        *(tables, question.threads, question.memory),
    )


def _joined(store: Store, outputs: Sequence[DatasetRef], parents: Sequence[str]) -> DatasetRef:
    """Join the outputs with rows to one dataset, by links to their files."""
    parts = [output for output in outputs if output.rows] or outputs[:1]
    if len(parts) == 1:
        return parts[0].model_copy(update={"parents": tuple(sorted(set(parents)))})
    files = (file for part in parts for file in dataset_files(store, part))
    return publish_files(store, parts[0].name, files, schema_version=parts[0].schema_version, parents=parents)


def _left_out(store: Store, parts: Sequence[DatasetRef], parents: Sequence[str]) -> dict[str, DatasetRef]:
    """Return the captured rows that were filtered, whatever partition they were in, as one dataset in the order of their ids."""
    if not parts:
        return {}
    rows = pa.concat_tables([read_dataset(store, part) for part in parts]).sort_by("row_id")
    return {"quarantine": publish_dataset(store, "quarantine", [rows], parents=parents)}


def _result(output: DatasetRef, made: Sequence[Decided]) -> StepResult:
    counts = [together(step) for step in zip(*(one.counts for one in made), strict=True)]
    figures = with_means(summed([one.figures for one in made]))
    decided = [count for count in counts[:-1] if count.unit == "trajectories"]
    filtered = together(decided).filtered
    if unpaired := decided[-1].rows_out - figures.get("paired", decided[-1].rows_out):
        filtered["in no pair"] = int(unpaired)
    details: JsonObject = {"steps": [count.model_dump() for count in counts], **figures}
    if made[0].slices:  # which need all rows at once, so there is one part
        details["slices"] = made[0].slices
    return StepResult(output=output, rows_in=counts[0].rows_in, rows_out=output.rows, filtered=filtered, details=details)
