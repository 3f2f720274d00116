"""Who of what was read is new, and under which names: decided in one place, in the order of files and lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from clawpipe.importers.labels import Labels
from clawpipe.ingest.claims import Admitted, Claim, Claims, Name
from clawpipe.ingest.known import Known
from clawpipe.ingest.naming import Namer
from clawpipe.ingest.repeats import Repeats
from clawpipe.lineage.tombstones import REASON, Tombstones
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files, dataset_ref


class Admission:
    """Names what is new.

    Attributes:
        repeated: records that are stored already.
        refused: reasons of records that no dataset may hold: of what was forgotten nothing is kept but the count.
        labels: by prompt and attempt.
    """

    def __init__(self, store: Store, stored: Mapping[str, Sequence[str]], labels: Labels, forgotten: Tombstones) -> None:
        files = {name: stored_files(store, stored, name) for name in ("trajectories", "preference_pairs", "task_items")}
        rows = files["trajectories"]
        self._namer = Namer(Known(store, rows, "trajectory_id"), Known(store, rows, "item_id"))
        self._repeats = Repeats(store, rows)
        self._pairs = Known(store, files["preference_pairs"], "pair_id")
        self._items = Known(store, files["task_items"], "item_id")
        self._new, self._ordinals = set[str](), 0
        self._forgotten, self._forgotten_lines = forgotten, set[tuple[str, int]]()
        self.labels, self.repeated, self.refused = labels, 0, Counter[str]()

    def next_file(self) -> None:
        """What comes now is of another file."""
        self._namer.next_file()

    def admit(self, claims: Claims, grown: bool) -> Admitted:
        """What of a batch is new.

        Args:
            grown: it is in a part that its file has grown by.
        """
        self.refused[REASON] += claims.gone_rows
        for file, line, lines in claims.gone:
            self._set_aside(file, line, lines)
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
            self._set_aside(*claim.place)
            return None
        name.label = self.labels.of(claim.prompt, name.index) if claim.prompt is not None else None
        return name

    def _set_aside(self, file: str, line: int, lines: int) -> None:
        """Count what was forgotten, line by line; of one line there may be several conversations."""
        self.refused[REASON] += 0 if (file, line) in self._forgotten_lines else lines
        self._forgotten_lines.add((file, line))

    def _is_new(self, name: str, known: Known) -> bool:
        if name in self._new or name in known:
            self.repeated += 1
            return False
        self._new.add(name)
        return True

    def _ordinal(self) -> int:
        self._ordinals += 1
        return self._ordinals - 1


def stored_files(store: Store, stored: Mapping[str, Sequence[str]], name: str) -> list[Path]:
    """Files of what earlier runs have stored under a name."""
    refs = [dataset_ref(store, name, digest) for digest in stored.get(name, ())]
    return [file for ref in refs for file in dataset_files(store, ref)]
