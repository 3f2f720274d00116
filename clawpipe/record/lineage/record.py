"""Record the lineage of a night: the graph of its artifacts, from its journal.

`lineage.json` is the record; pictures are views of it.

An edge goes from an input to an output: task items -> trajectories -> scores, samples -> adapter, and with the
held-out results -> verdict -> model version. Artifacts are named by content, so the graphs of several nights join by their ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clawpipe.core.config.block import renamed
from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.refs import DatasetRef, ModelRef, OptimizerRef, Ref
from clawpipe.errors import DataError, NotFoundError
from clawpipe.record.nights.files import LINEAGE
from clawpipe.record.nights.status import NightStatus, RegisteredModel

VERDICT = "verdict"  # id of the verdict's node


class Node(BaseModel):
    """An artifact or a decision."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(description="digest of an artifact, `models:/NAME/VERSION`, or `verdict`")
    kind: Literal["dataset", "base", "model", "optimizer", "verdict", "version", "unknown"]
    name: str
    rows: int | None = None
    schema_version: str | None = None
    policy_version: str | None = None
    step: str | None = Field(default=None, description="the step that made it first; null: it was there before the night")


class Step(BaseModel):
    """A step of the night with its inputs and outputs."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    state: str
    seconds: float
    rows_in: int
    rows_out: int
    filtered: dict[str, int] = renamed("set_aside", "filtered")
    key: str | None
    digest: str | None


class Lineage(BaseModel):
    """The lineage of a night. `nodes` are in the order of their creation, those from before the night first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    night: str
    verdict: str | None
    model: RegisteredModel | None
    choice: str | None = Field(default=None, description="why which round's policy is the candidate; None: there was one round")
    link: str | None = Field(description="where the model registry shows the version")
    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str], ...] = Field(description="ids: read, made")
    steps: tuple[Step, ...]

    def node(self, identity: str) -> Node | None:
        return next((node for node in self.nodes if node.id == identity), None)

    def parents(self, identity: str) -> list[str]:
        return [read for read, made in self.edges if made == identity]


def build_lineage(status: NightStatus, *, outside: Iterable[Ref] = (), link: str | None = None) -> Lineage:
    """Build the lineage of a night with a verdict.

    Args:
        status: with verdict, policy version and model.
        outside: artifacts from before the night, e.g. the champion. Other unknown inputs appear by digest alone.
        link: the URL of the model version in the registry, without credentials.
    """
    made = [(step.name, ref) for step in status.steps for ref in step.artifacts.values()]
    edges = dict.fromkeys(_edges(status, [ref for _, ref in made] + list(outside)))
    nodes = {node.id: node for node in reversed([*_made_nodes(made), *_end_nodes(status)])}  # the first maker stays
    given = {node.id: node for node in map(_node, [*_bases(ref for _, ref in made), *outside])}
    given |= {read: Node(id=read, kind="unknown", name="artifact") for read, _ in edges if read not in nodes and read not in given}
    before = [node for identity, node in given.items() if identity not in nodes]
    return Lineage(
        night=status.night,
        verdict=status.verdict,
        model=status.model,
        choice=status.choice.reason if status.choice else None,
        link=link,
        nodes=(*before, *reversed(nodes.values())),
        edges=tuple(edges),
        steps=tuple(Step.model_validate(step.model_dump(mode="json")) for step in status.steps),
    )


def write_lineage(lineage: Lineage, run_dir: Path) -> Path:
    """Write `lineage.json` into the night's run directory; returns its path."""
    write_atomic(run_dir / LINEAGE, lineage.model_dump_json(indent=2).encode())
    return run_dir / LINEAGE


def read_lineage(run_dir: Path) -> Lineage:
    """Read the lineage of a past night.

    Raises:
        NotFoundError: the night has none.
        DataError: the file is damaged.
    """
    path = run_dir / LINEAGE
    try:
        return Lineage.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise NotFoundError("this night left no lineage", str(path), "run the night again: finished steps are cached") from None
    except ValidationError as error:
        raise DataError(f"the file is damaged: {error.errors()[0]['msg']}", str(path), "run the night again") from None


def _edges(status: NightStatus, refs: Iterable[Ref]) -> Iterator[tuple[str, str]]:
    for ref in refs:
        yield from ((parent, ref.digest) for parent in ref.parents if parent != ref.digest)
    if status.verdict is None:
        return
    results = [step.digest for step in status.steps if step.name.startswith("evaluate/")]
    yield from ((digest, VERDICT) for digest in results if digest)
    if status.model:
        yield from ((read, _version_id(status.model)) for read in (*_candidates(status), VERDICT))


def _candidates(status: NightStatus) -> list[str]:
    """Return the adapter of the policy version."""
    refs = [ref for step in status.steps for ref in step.artifacts.values() if isinstance(ref, ModelRef)]
    return [ref.digest for ref in refs if ref.policy_version == status.policy_version][:1]


def _made_nodes(made: Iterable[tuple[str, Ref]]) -> Iterator[Node]:
    for step, ref in made:
        yield _node(ref).model_copy(update={"step": step})


def _end_nodes(status: NightStatus) -> Iterator[Node]:
    if status.verdict:
        yield Node(id=VERDICT, kind="verdict", name=status.verdict, step="gate")
    if status.model:
        name = f"{status.model.name} version {status.model.version}"
        yield Node(id=_version_id(status.model), kind="version", name=name, policy_version=status.policy_version, step="register")


def _bases(refs: Iterable[Ref]) -> Iterator[ModelRef]:
    """Yield the untrained base models."""
    for ref in refs:
        if isinstance(ref, ModelRef) and ref.stored:
            yield ref.model_copy(update={"digest": ref.base, "adapter": False, "weights": False, "parents": ()})


def _node(ref: Ref) -> Node:
    if isinstance(ref, DatasetRef):
        return Node(id=ref.digest, kind="dataset", name=ref.name, rows=ref.rows, schema_version=ref.schema_version)
    if isinstance(ref, OptimizerRef):
        return Node(id=ref.digest, kind="optimizer", name=ref.name)
    if ref.stored:
        return Node(id=ref.digest, kind="model", name=ref.name, policy_version=ref.policy_version)
    return Node(id=ref.digest, kind="base", name=Path(ref.base_name).name)  # not the path of a local model


def _version_id(model: RegisteredModel) -> str:
    return f"models:/{model.name}/{model.version}"
