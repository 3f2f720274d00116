"""Render stored conversations that exist only as text, for imitation: a dataset in, the same with token ids out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.core.config.environment import Played
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.conversation.endings import COLUMNS
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset
from clawpipe.core.store.parts import rechunk
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.model.policy.spec import policy_spec
from clawpipe.model.policy.text import RendererOf, render_row, renderers
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.environments.openings import Opening, opening_for, openings

_BATCH = 64


def render_text(store: Store, trajectories: DatasetRef, policy: ModelRef, environment: Played) -> StepResult:
    """Fill `rendered_ids` and `rendered_mask` of the rows without tokens; a dataset without such rows is returned unchanged.

    A row that the policy's tool-call format cannot write stays unchanged and is counted; curation filters it.

    Raises:
        DataError: a dataset, or the base model, is missing or damaged.
    """
    files = dataset_files(store, trajectories)
    if not any("none" in pq.read_table(file, columns=["tokens"])["tokens"].unique().to_pylist() for file in files):
        return StepResult(output=trajectories, rows_in=trajectories.rows, rows_out=trajectories.rows)
    spec = policy_spec(store, policy)
    tokenizer, known = load_tokenizer(Path(spec.base)), openings(environment)
    renderers_of = {opening.label: renderers(tokenizer, spec.tool_call_format, opening.specs()) for opening in known}
    failed: Counter[str] = Counter()
    batches = (_rendered(batch, renderers_of, known, failed) for file in files for batch in _batches(file))
    parents = [trajectories.digest, policy.digest]
    output = publish_dataset(store, trajectories.name, rechunk(batches, schema_of("trajectories")), parents=parents)
    return StepResult(output=output, rows_in=trajectories.rows, rows_out=output.rows, details={"not_rendered": dict(failed)})


def _rendered(
    batch: pa.RecordBatch, renderers_of: Mapping[str, RendererOf], known: Sequence[Opening], failed: Counter[str]
) -> pa.RecordBatch:
    """Return the batch with its text rows rendered, each as its environment's rollouts are; rows with tokens stay unchanged."""
    table = conformed(pa.Table.from_batches([batch]), schema_of("trajectories"))
    columns = {name: table[name].to_pylist() for name in ("rendered_ids", "rendered_mask", "renderer_digest")}
    narrow = table.select(["tokens", "messages", "tools", "kinds", "environment", *COLUMNS]).to_pylist()
    for place, row in enumerate(narrow):
        if row["tokens"] != "none":
            continue
        opening = opening_for(known, row["environment"])
        result = render_row(row, renderers_of[opening.label], opening.messages())
        if isinstance(result, str):
            failed[result] += 1
        else:
            (columns["rendered_ids"][place], columns["rendered_mask"][place]), columns["renderer_digest"][place] = result
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))
    return table.combine_chunks().to_batches()[0]


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    yield from pq.ParquetFile(file).iter_batches(_BATCH)
