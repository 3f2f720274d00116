"""Hold out stored conversations and preference pairs.

The side of a row depends only on its owner: its user, else its session, else its prompt. So it is the same on every night, and all
rows of a user are on one side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import Row
from clawpipe.core.config.environment import CONVERSATIONS
from clawpipe.core.contracts.odcs import newest_version
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.contracts.validate import validate
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset, read_dataset
from clawpipe.core.store.digests import sha256_bytes
from clawpipe.core.store.parts import rechunk
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.play.environments.split import heldout

HELD_OUT = "held out"
WHOSE = ("user_id", "session_id", "item_id")


def identity_of(row: Row, one_user: bool = False) -> str:
    """Return what decides the side of a row: its user, else its session, else its prompt. It names nobody: a ledger keeps it.

    Args:
        one_user: whether all rows are of one user, so that sessions are the independent observations.
    """
    for name in ("session",) if one_user else ("user", "session"):
        if row.get(f"{name}_id"):
            return f"{name}/{sha256_bytes(row[f'{name}_id'].encode())[:16]}"
    return f"prompt/{row['item_id']}"


def identities(file: Path, one_user: bool = False) -> list[str]:
    """Return the identity of each row of a file of trajectories or preference pairs."""
    present = set(pq.read_schema(file).names)
    rows = pq.read_table(file, columns=[name for name in WHOSE if name in present]).to_pylist()
    return [identity_of(row, one_user) for row in rows]


def hold_out(store: Store, rows: DatasetRef, share: float, one_user: bool = False) -> StepResult:
    """Split stored trajectories or preference pairs into rows to train on and rows that no night trains on.

    Args:
        one_user: see `identity_of`.

    Returns:
        output: the rows to train on, in order. extras: "heldout", the others; "quarantine", if a row breaks the contract.

    Raises:
        DataError: the dataset is missing or damaged, or has another layout.
    """
    checked = validate(store, rows, rows.name)
    files, schema = dataset_files(store, checked.dataset), schema_of(rows.name)
    sides = [[heldout(identity, share, salt=CONVERSATIONS) for identity in identities(file, one_user)] for file in files]
    parts = (rechunk(_rows(files, sides, side, schema), schema) for side in (False, True))
    version, parents = newest_version(rows.name), [checked.dataset.digest]
    kept, apart = (publish_dataset(store, rows.name, part, schema_version=version, parents=parents) for part in parts)
    return StepResult(
        output=kept,
        extras={**checked.extras, "heldout": apart},
        rows_in=rows.rows,
        rows_out=kept.rows,
        filtered=checked.filtered | {HELD_OUT: apart.rows},
    )


def _rows(files: Sequence[Path], sides: Sequence[Sequence[bool]], wanted: bool, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for file, of_file in zip(files, sides, strict=True):
        mask = pa.array([side == wanted for side in of_file], pa.bool_())
        yield from conformed(pq.read_table(file), schema).filter(mask).combine_chunks().to_batches()


@dataclass(frozen=True)
class Reviews:
    """What people decided about held-out rows: what they rejected or edited is no example of a good reply.

    Attributes:
        verdicts: by the id of a trajectory or a pair.
        approved_only: whether what nobody has approved is no evidence either.
    """

    verdicts: Mapping[str, str]
    approved_only: bool

    @classmethod
    def read(cls, store: Store, reviews: DatasetRef | None, approved_only: bool) -> Reviews:
        rows = read_dataset(store, reviews, ["row_id", "verdict"]).to_pylist() if reviews else []
        return cls({row["row_id"]: row["verdict"] for row in rows}, approved_only)

    @property
    def approved(self) -> list[str]:
        return [name for name, verdict in self.verdicts.items() if verdict == "approved"]

    def fault(self, name: str) -> str:
        """Return why a row is no evidence, as curation says it; "" if it may be."""
        verdict = self.verdicts.get(name)
        if verdict in ("rejected", "edited"):
            return f"{verdict} by a person"
        return "waits for approval" if verdict is None and self.approved_only else ""
