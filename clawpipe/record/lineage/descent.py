"""Which models descend from which datasets and models, as the nights of a home have recorded it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.records import parse_record
from clawpipe.core.store.refs import ModelRef
from clawpipe.core.store.replaced import replaced, successor
from clawpipe.errors import ClawpipeError
from clawpipe.record.lineage.record import read_lineage
from clawpipe.record.nights.files import list_nights, run_dir
from clawpipe.record.nights.status import read_status

_NAMES_MODEL = b"base_name"  # a field of refs of models only; most records name none, and parsing takes longer than a search


@dataclass(frozen=True)
class Made:
    """A model with its parents, and the night that made it, if a record names it."""

    digest: str
    night: str | None
    parents: tuple[str, ...]

    def joined(self, other: Made) -> Made:
        return Made(self.digest, self.night or other.night, tuple(dict.fromkeys([*self.parents, *other.parents])))


def learners(home: Home, training_datasets: Iterable[str]) -> dict[str, Made]:
    """Return the models that were trained on one of these datasets, or start from such a model, by digest.

    Args:
        home: the home with the nights; damaged records are skipped.
        training_datasets: digests of training datasets, current or replaced.
    """
    taken = replaced(open_store(home))
    children = _children(_models(home).values(), taken)
    return _descendants(children, {successor(taken, digest) for digest in training_datasets})


def ancestors(home: Home, models: Iterable[ModelRef]) -> set[str]:
    """Return the digests of all that these models descend from: models and datasets, as nights of this home have recorded it."""
    known, found = _models(home), set[str]()
    ahead = deque(parent for model in models for parent in (*model.parents, *_parents(known, model.digest)))
    while ahead:
        if (digest := ahead.popleft()) not in found:
            found.add(digest)
            ahead += _parents(known, digest)
    return found


def _parents(known: Mapping[str, Made], digest: str) -> tuple[str, ...]:
    return known[digest].parents if digest in known else ()


def _children(models: Iterable[Made], taken: Mapping[str, str]) -> dict[str, list[Made]]:
    """Return models by the digest of each input, current ones in place of those that were replaced."""
    children: defaultdict[str, list[Made]] = defaultdict(list)
    for made in models:
        for parent in dict.fromkeys(successor(taken, one) for one in made.parents):
            children[parent].append(made)
    return children


def _descendants(children: Mapping[str, Sequence[Made]], digests: Iterable[str]) -> dict[str, Made]:
    """Return the models that have one of these among their ancestors, by digest, the nearest first."""
    found: dict[str, Made] = {}
    ahead = deque(digests)
    while ahead:
        new = {made.digest: made for made in children.get(ahead.popleft(), ()) if made.digest not in found}
        found |= new
        ahead += new
    return found


def _models(home: Home) -> dict[str, Made]:
    """Return every model that a night of this home has made, with all records of it merged."""
    journals = (_made(ref, night) for night, ref in _model_refs(home) if ref.stored)
    known: dict[str, Made] = {}
    for made in (*_from_lineages(home), *journals):
        known[made.digest] = known[made.digest].joined(made) if made.digest in known else made
    return known


def _from_lineages(home: Home) -> Iterator[Made]:
    for night in list_nights(home):
        try:
            lineage = read_lineage(run_dir(home, night))
        except ClawpipeError:
            continue
        for node in lineage.nodes:
            if node.kind == "model" and node.step:
                yield Made(node.id, night, tuple(sorted(lineage.parents(node.id))))


def _model_refs(home: Home) -> Iterator[tuple[str | None, ModelRef]]:
    """Yield the refs of models in journals and step records."""
    for night in list_nights(home):
        try:
            steps = read_status(home, night).steps
        except ClawpipeError:
            continue
        yield from ((night, ref) for step in steps for ref in step.artifacts.values() if isinstance(ref, ModelRef))
    for path in sorted(home.steps.glob("*")):
        data = path.read_bytes() if path.is_file() else b""
        result = parse_record(data) if _NAMES_MODEL in data else None
        yield from ((None, ref) for ref in (result.refs() if result else ()) if isinstance(ref, ModelRef))


def _made(ref: ModelRef, night: str | None) -> Made:
    return Made(ref.digest, night, tuple(sorted(ref.parents)))


def learnt_by(made: Mapping[str, Made], taken: Mapping[str, str], hits: Iterable[str]) -> Mapping[str, set[str]]:
    """Return for each model the hits among its inputs and those of its ancestors."""
    children = _children(made.values(), taken)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for digest in hits:
        for model in _descendants(children, [digest]):
            found[model].add(digest)
    return found
