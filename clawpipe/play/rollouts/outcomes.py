"""What rollouts came to, item by item: DuckDB joins them with their verdicts, so that those of millions need little memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from clawpipe.core.basics.json_types import Row
from clawpipe.core.contracts.sampled import PART
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files
from clawpipe.core.store.duck import have_different_columns, session
from clawpipe.core.store.refs import DatasetRef

_MEMORY = "256MB"  # beyond it DuckDB goes to disk
_FILE = 1 << 40  # more than a file has rows, so that a place orders rows as they are stored
_VERDICTS = f"""
    with verdicts as (
        select trajectory_id, arg_max(success, file_index::bigint * {_FILE} + file_row_number) as success
        from read_parquet($scores, union_by_name = $mixed_scores)
        where turn is null and origin = 'verifier' and success is not null
        group by trajectory_id
    )"""
_OUTCOMES = f"""
    {_VERDICTS},
    tried as (
        select trajectory_id, item_id, policy_version, file_index::bigint * {_FILE} + file_row_number as place
        from read_parquet($trajectories, union_by_name = $mixed_trajectories)
        where not (coalesce(contains(extra, '"{PART}"'), false) and json_exists(extra, '$.{PART}'))
    )
    select item_id, policy_version, count(*) as rollouts, count(success) as verified, count(*) filter (where success) as won
    from tried left join verdicts using (trajectory_id)
    group by item_id, policy_version order by min(place)"""
_UNSOLVED = f"""
    {_VERDICTS}
    select item_id, 1 + max(rollout_index) as rollout_index, unnest(arg_min(
        {{group_id: group_id, policy_version: policy_version, temperature: temperature}}, trajectory_id
    ))
    from read_parquet($trajectories, union_by_name = $mixed_trajectories) join verdicts using (trajectory_id)
    where source = 'rollout' group by item_id having not bool_or(success) order by item_id"""


class Outcome(NamedTuple):
    """What the rollouts of an item by one policy came to: how many there are, have a verifier's verdict, and succeeded. An episode
    is one rollout, however many rows it left."""

    item_id: str
    policy_version: str
    rollouts: int
    verified: int
    won: int


def outcomes(store: Store, trajectories: Sequence[DatasetRef], scores: Sequence[DatasetRef]) -> Iterator[Outcome]:
    """Yield the outcome of each item and policy, in the order of their first rollouts. Of several verdicts the last one counts.

    Raises:
        DataError: a dataset is missing or damaged.
    """
    for row in _asked(_OUTCOMES, store, trajectories, scores):
        yield Outcome(**row)


def unsolved(store: Store, trajectories: Sequence[DatasetRef], scores: Sequence[DatasetRef]) -> Iterator[Row]:
    """Yield the items that no verified rollout solved, by id: item_id, the group, policy and temperature of the first rollout by
    id, and the rollout_index after all of them.

    Raises:
        DataError: a dataset is missing or damaged.
    """
    yield from _asked(_UNSOLVED, store, trajectories, scores)


def _asked(query: str, store: Store, trajectories: Sequence[DatasetRef], scores: Sequence[DatasetRef]) -> Iterator[Row]:
    given = {"trajectories": trajectories, "scores": scores}
    files = {name: [str(file) for ref in refs for file in dataset_files(store, ref)] for name, refs in given.items()}
    if not all(files.values()):
        return
    mixed = {f"mixed_{name}": have_different_columns(paths) for name, paths in files.items()}
    with session(store, [file for paths in files.values() for file in paths], memory=_MEMORY) as duck:
        for batch in duck.sql(query, params={**files, **mixed}).to_arrow_reader(8192):
            yield from batch.to_pylist()
