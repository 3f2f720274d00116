"""What rollouts came to, item by item: DuckDB joins them with their verdicts, so that those of millions need little memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from clawpipe.core.contracts.sampled import PART
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files
from clawpipe.core.store.duck import have_different_columns, session
from clawpipe.core.store.refs import DatasetRef

_MEMORY = "256MB"  # beyond it DuckDB goes to disk
_FILE = 1 << 40  # more than a file has rows, so that a place orders rows as they are stored
_OUTCOMES = f"""
    with verdicts as (
        select trajectory_id, arg_max(success, file_index::bigint * {_FILE} + file_row_number) as success
        from read_parquet($scores, union_by_name = $mixed_scores)
        where turn is null and origin = 'verifier' and success is not null
        group by trajectory_id
    ),
    tried as (
        select trajectory_id, item_id, policy_version, file_index::bigint * {_FILE} + file_row_number as place
        from read_parquet($trajectories, union_by_name = $mixed_trajectories)
        where not (coalesce(contains(extra, '"{PART}"'), false) and json_exists(extra, '$.{PART}'))
    )
    select item_id, policy_version, count(*) as rollouts, count(success) as verified, count(*) filter (where success) as won
    from tried left join verdicts using (trajectory_id)
    group by item_id, policy_version order by min(place)"""


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
    given = {"trajectories": trajectories, "scores": scores}
    files = {name: [str(file) for ref in refs for file in dataset_files(store, ref)] for name, refs in given.items()}
    if not all(files.values()):
        return
    mixed = {f"mixed_{name}": have_different_columns(paths) for name, paths in files.items()}
    with session(store, [file for paths in files.values() for file in paths], memory=_MEMORY) as duck:
        for batch in duck.sql(_OUTCOMES, params={**files, **mixed}).to_arrow_reader(8192):
            for row in batch.to_pylist():
                yield Outcome(**row)
