"""Decide which records are new, and name them, in the order of files and lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from clawpipe.core.contracts.reasons import identifier
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, dataset_ref
from clawpipe.core.store.digests import sha256_bytes
from clawpipe.core.store.duck import session
from clawpipe.data.forgotten.tombstones import REASON, Tombstones
from clawpipe.data.importers.read.labels import Labels
from clawpipe.data.ingest.intake.claims import Admitted, Claim, Claims, Name
from clawpipe.data.ingest.intake.digests import DigestCounts, DigestSet
from clawpipe.data.ingest.intake.repeats import Repeats
from clawpipe.data.ingest.intake.rows import trajectory_id_of


class Known:
    """The stored values of one column, or of several joined by line feeds, as sorted 64-bit digests."""

    def __init__(self, store: Store, files: Sequence[Path], *columns: str) -> None:
        self._names = np.empty(0, np.uint64)
        if files:
            value = f"concat_ws(chr(10), {', '.join(map(identifier, columns))})"
            query = f"select ('0x' || sha256({value})[:16])::ubigint as name from read_parquet($files)"
            with session(store, files) as duck:
                found = duck.execute(query, {"files": [str(file) for file in files]}).fetchnumpy()
            self._names = np.sort(next(iter(found.values())))

    def count(self, name: str) -> int:
        """Return the number of rows with this name."""
        if not self._names.size:
            return 0
        value = np.uint64(digest64(name))
        return int(np.searchsorted(self._names, value, "right") - np.searchsorted(self._names, value, "left"))

    def __contains__(self, name: str) -> bool:
        return self.count(name) > 0


def digest64(name: str) -> int:
    return int(sha256_bytes(name.encode())[:16], 16)


class Namer:
    """Names the conversations of one run, file by file.

    Equal conversations on several lines are one trajectory, in one file or in several: a log holds a request that was tried again
    twice, and it teaches once. Where judgements, status, recorded tokens or the turns that are taught differ they are several
    attempts, as are equal answers on one line, and where there are labels, which tell them apart. In the new part of a grown file,
    numbering continues after all known copies.

    Args:
        trajectories, items: `trajectory_id` and `item_id` of the stored rows.
    """

    def __init__(self, trajectories: Known, items: Known) -> None:
        self._trajectories, self._items = trajectories, items
        self._new, self._attempts = DigestSet(), DigestCounts()
        self.next_file()

    def next_file(self) -> None:
        self._copies = DigestCounts()
        self._said, self._lines = DigestSet(), DigestSet()  # what is said, and the same with the first line that says it

    def name(self, claim: Claim, grown: bool) -> Name | None:
        """Return the names of a conversation; None if it is stored already.

        Args:
            grown: whether it is in the new part of a grown file.
        """
        if claim.content and claim.prompt is None and self._is_repeated(claim.content, claim, grown):
            return None
        trajectory_id = claim.trajectory_id or self._trajectory_id(claim.content or b"", grown)
        return Name(trajectory_id, claim.item_id, self._attempt(claim.item_id)) if self._is_new(trajectory_id) else None

    def _is_repeated(self, content: bytes, claim: Claim, grown: bool) -> bool:
        """Whether another line holds the same conversation."""
        said = hash((claim.item_id, content, claim.rest, claim.taught))
        line = hash((said, claim.place[1]))
        if self._said.add(said):
            self._lines.add(line)
        is_plain = not claim.rest and _is_usual(claim.taught)
        return line not in self._lines or (grown and is_plain and trajectory_id_of(content, 0) in self._trajectories)

    def _trajectory_id(self, content: bytes, grown: bool) -> str:
        while True:
            trajectory_id = trajectory_id_of(content, self._copies.count(int(content[:16], 16)))
            if not (grown and trajectory_id in self._trajectories):
                return trajectory_id

    def _is_new(self, name: str) -> bool:
        return name not in self._trajectories and self._new.add(hash(name))

    def _attempt(self, item_id: str) -> int:
        """Return the number of earlier attempts at the item."""
        return self._items.count(item_id) + self._attempts.count(hash(item_id))


def _is_usual(taught: bytes) -> bool:
    """Whether all turns are taught, or the last one alone, as of a logged request."""
    return 0 not in taught or taught == b"\1".rjust(len(taught), b"\0")


class Admission:
    """Names the new records.

    Attributes:
        repeated: number of records that are stored already.
        refused: number of forgotten records by reason; nothing else of them is kept.
        labels: labels by prompt and attempt.
    """

    def __init__(self, store: Store, stored: Mapping[str, Sequence[str]], labels: Labels, forgotten: Tombstones) -> None:
        files = {name: stored_files(store, stored, name) for name in ("trajectories", "preference_pairs", "task_items")}
        rows = files["trajectories"]
        self._namer = Namer(Known(store, rows, "trajectory_id"), Known(store, rows, "item_id"))
        self._repeats = Repeats(store, rows)
        self._pairs = Known(store, files["preference_pairs"], "pair_id")
        self._items = Known(store, files["task_items"], "item_id")
        self._new, self._ordinals = DigestSet(), 0
        self._forgotten, self._forgotten_lines = forgotten, set[tuple[str, int]]()
        self.labels, self.repeated, self.refused = labels, 0, Counter[str]()
        self._file = ""

    def admit(self, claims: Claims, file: str, grown: bool) -> Admitted:
        """Decide which records of a batch are new.

        Args:
            file: the file of the batch; batches of one file come one after the other.
            grown: whether the batch is in the new part of a grown file.
        """
        if file != self._file:
            self._file = file
            self._namer.next_file()
        self.refused[REASON] += claims.gone_rows
        for file, line, lines in claims.gone:
            self._count_forgotten(file, line, lines)
        names = [self._name(claim, grown) for claim in claims.conversations]
        new = [(claim, name) for claim, name in zip(claims.conversations, names, strict=True) if name]
        for (_, name), known in zip(new, self._repeats.known_turns([claim for claim, _ in new]), strict=True):
            name.known = known
        pairs = [self._is_new(name, self._pairs) for name in claims.pairs]
        return Admitted(names, pairs, [self._ordinal() if self._is_new(name, self._items) else None for name in claims.prompts])

    def _name(self, claim: Claim, grown: bool) -> Name | None:
        name = self._namer.name(claim, grown)
        if name is None:
            self.repeated += 1
            return None
        if self._forgotten.covers_row(name.trajectory_id):
            self._count_forgotten(*claim.place)
            return None
        name.label = self.labels.of(claim.prompt, name.index) if claim.prompt is not None else None
        return name

    def _count_forgotten(self, file: str, line: int, lines: int) -> None:
        """Count the forgotten lines; a line with several conversations counts once."""
        self.refused[REASON] += 0 if (file, line) in self._forgotten_lines else lines
        self._forgotten_lines.add((file, line))

    def _is_new(self, name: str, known: Known) -> bool:
        is_new = name not in known and self._new.add(hash(name))
        self.repeated += not is_new
        return is_new

    def _ordinal(self) -> int:
        self._ordinals += 1
        return self._ordinals - 1


def stored_files(store: Store, stored: Mapping[str, Sequence[str]], name: str) -> list[Path]:
    """Return the files of the datasets with this name that earlier runs have stored."""
    refs = [dataset_ref(store, name, digest) for digest in stored.get(name, ())]
    return [file for ref in refs for file in dataset_files(store, ref)]
