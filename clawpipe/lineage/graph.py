"""Which models were made of which datasets: the lineages, journals and step records of a home as one graph of digests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from clawpipe.errors import ClawpipeError
from clawpipe.lineage.record import read_lineage
from clawpipe.nights.record import list_nights, read_status, run_dir
from clawpipe.store.home import Home
from clawpipe.store.open import open_store
from clawpipe.store.records import parse_record
from clawpipe.store.refs import AnyRef, ModelRef
from clawpipe.store.replaced import replaced, successor

TAUGHT_BY = ("samples", "preference_pairs")  # datasets that a trainer reads


@dataclass(frozen=True)
class Made:
    """A model: what it was made of, and the night that made it where one says so."""

    digest: str
    night: str | None
    parents: tuple[str, ...]

    def joined(self, other: Made) -> Made:
        return Made(self.digest, self.night or other.night, tuple(dict.fromkeys([*self.parents, *other.parents])))


def learners(home: Home, lessons: Iterable[str]) -> dict[str, Made]:
    """Models that were trained on one of these datasets, or start from such a model, by digest.

    Args:
        home: whose nights are read; a damaged record says nothing.
        lessons: digests of what trainers read, in force or replaced.
    """
    taken, known = replaced(open_store(home)), _models(home).values()
    tainted = {successor(taken, digest) for digest in lessons}
    found: dict[str, Made] = {}
    grown = True
    while grown:
        reached = tainted | found.keys()
        new = [made for made in known if made.digest not in found and reached & {successor(taken, one) for one in made.parents}]
        found |= {made.digest: made for made in new}
        grown = bool(new)
    return found


def _models(home: Home) -> dict[str, Made]:
    """Every model that a night of this home has made, all that is told of it together."""
    journals = (_made(ref, night) for night, ref in _refs(home) if isinstance(ref, ModelRef) and ref.stored)
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


def _refs(home: Home) -> Iterator[tuple[str | None, AnyRef]]:
    """Artefacts that journals and step records name."""
    for night in list_nights(home):
        try:
            steps = read_status(home, night).steps
        except ClawpipeError:
            continue
        yield from ((night, ref) for step in steps for ref in step.artefacts.values())
    for path in sorted(home.steps.glob("*")):
        result = parse_record(path.read_bytes()) if path.is_file() else None
        yield from ((None, ref) for ref in (result.refs() if result else ()))


def _made(ref: AnyRef, night: str | None) -> Made:
    return Made(ref.digest, night, tuple(sorted(ref.parents)))
