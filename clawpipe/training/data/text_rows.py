"""Render conversations that exist only as text for imitation: token ids, and a mask of the turns to learn from.

Like text pairs they are rendered by clawpipe.policy.renderer, never by a chat template. A conversation with a system message
or tools is rendered in that context; any other one follows the environment's preamble, as rollouts do.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.config.night import EnvironmentSpec
from clawpipe.contracts.schema import conformed, schema_of
from clawpipe.environments.discovery import load_environment
from clawpipe.json_types import JsonObject, Row
from clawpipe.messages import Message, ToolCallFormat, ToolSpec
from clawpipe.policy.renderer import Renderer
from clawpipe.policy.spec import policy_spec
from clawpipe.policy.template import open_renderer
from clawpipe.policy.vocabulary import load_tokenizer
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files, publish_dataset
from clawpipe.store.parts import rechunk
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_BATCH = 64
_RENDERERS = 32  # each holds a copy of the tokenizer

Rendering = tuple[list[int], list[bool]]
RendererOf = Callable[[str | None], Renderer]  # argument: JSON of a row's tools; None: the environment's tools


def render_text(store: Store, trajectories: DatasetRef, policy: ModelRef, environment: EnvironmentSpec) -> StepResult:
    """Fill `rendered_ids` and `rendered_mask` of the rows without tokens; a dataset without such rows is returned unchanged.

    A row that the policy's tool-call format cannot write stays unchanged and is counted; curation filters it.

    Raises:
        DataError: a dataset, or the base model, is missing or damaged.
    """
    files = dataset_files(store, trajectories)
    if not any("none" in pq.read_table(file, columns=["tokens"])["tokens"].unique().to_pylist() for file in files):
        return StepResult(output=trajectories, rows_in=trajectories.rows, rows_out=trajectories.rows)
    spec, loaded = policy_spec(store, policy), load_environment(environment.name, environment.options)
    renderer_of = renderers(load_tokenizer(Path(spec.base)), spec.calls, loaded.tools())
    failed: Counter[str] = Counter()
    batches = (_rendered(batch, renderer_of, loaded.preamble(), failed) for file in files for batch in _batches(file))
    parents = [trajectories.digest, policy.digest]
    output = publish_dataset(store, trajectories.name, rechunk(batches, schema_of("trajectories")), parents=parents)
    return StepResult(output=output, rows_in=trajectories.rows, rows_out=output.rows, details={"not_rendered": dict(failed)})


def renderers(tokenizer: PreTrainedTokenizerFast, calls: ToolCallFormat, tools: Sequence[ToolSpec]) -> RendererOf:
    """Return renderers by the JSON of a row's tools; None stands for the environment's `tools`."""

    @lru_cache(maxsize=_RENDERERS)
    def renderer_of(tools_json: str | None) -> Renderer:
        return open_renderer(tokenizer, calls, tools if tools_json is None else parse_tools(tools_json))

    return renderer_of


def context_of(
    tools: str | None, messages: Sequence[Message], renderer_of: RendererOf, preamble: Sequence[Message]
) -> tuple[Renderer, Sequence[Message]]:
    """Return the messages' renderer and the preamble before them, which is empty if they bring tools or a system message."""
    if tools is not None or messages[0].role == "system":
        return renderer_of(tools or "[]"), ()
    return renderer_of(None), preamble


def render_row(row: Row, renderer_of: RendererOf, preamble: Sequence[Message]) -> tuple[Rendering, str] | str:
    """Return ids and mask of a row with the renderer's digest, or why it cannot be rendered.

    Args:
        row: row of `trajectories`, with tokens "none".
        preamble: the environment's messages.
    """
    messages = tuple(map(Message.from_dict, row["messages"]))
    renderer, before = context_of(row["tools"], messages, renderer_of, preamble)
    try:
        ids, mask = renderer.spans([*before, *messages])
    except (ValueError, TypeError, AttributeError):  # a name that the format cannot write, or arguments that are no JSON object
        return "calls cannot be written"
    kinds = row["kinds"] or ["main"] * sum(message.role == "assistant" for message in messages)
    shown = ["side"] * sum(message.role == "assistant" for message in before)
    return (ids, main_only(mask, [*shown, *kinds])), renderer.digest


def main_only(mask: Sequence[bool], kinds: Sequence[str]) -> list[bool]:
    """Return the mask without the turns that are not main. Each run of the mask is one turn, since headers separate turns."""
    left, kept = iter(kinds), list[bool]()
    for sampled, run in groupby(mask):
        length = sum(1 for _ in run)
        kept += [sampled and next(left) == "main"] * length
    return kept


def parse_tools(tools: str) -> list[ToolSpec]:
    """Parse a row's tools from the JSON schemas of its source; entries that are no such schema are skipped."""
    listed = json.loads(tools)
    schemas = [tool.get("function", tool) for tool in listed if isinstance(tool, dict)] if isinstance(listed, list) else []
    return [_tool(schema) for schema in schemas if isinstance(schema, dict) and isinstance(schema.get("name"), str)]


def _tool(schema: JsonObject) -> ToolSpec:
    parameters = schema.get("parameters") or schema.get("inputSchema")
    if not isinstance(parameters, dict) or not isinstance(parameters.get("properties"), dict):
        parameters = {}
    return ToolSpec(schema["name"], str(schema.get("description") or ""), {"type": "object", **parameters})


def _rendered(batch: pa.RecordBatch, renderer_of: RendererOf, preamble: Sequence[Message], failed: Counter[str]) -> pa.RecordBatch:
    """Return the batch with its text rows rendered; rows with tokens stay unchanged."""
    table = conformed(pa.Table.from_batches([batch]), schema_of("trajectories"))
    columns = {name: table[name].to_pylist() for name in ("rendered_ids", "rendered_mask", "renderer_digest")}
    narrow = table.select(["tokens", "messages", "tools", "kinds"]).to_pylist()
    for place, row in enumerate(narrow):
        if row["tokens"] != "none":
            continue
        result = render_row(row, renderer_of, preamble)
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
