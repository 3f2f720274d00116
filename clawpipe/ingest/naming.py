"""Names for what is read, so that what is read twice is one row and what happened twice is two."""

from __future__ import annotations

from clawpipe.ingest.claims import Claim, Name
from clawpipe.ingest.known import Known
from clawpipe.ingest.rows import trajectory_id_of


class Namer:
    """Names the conversations of one run, file by file.

    Copies of a line in one file are as many trajectories: an agent may say the same thing twice. Copies in another file, or in one
    that is read again, are the trajectories that are known. The part that a file has grown by begins after all known copies.

    Args:
        trajectories, items: `trajectory_id` and `item_id` of the rows that are stored.
    """

    def __init__(self, trajectories: Known, items: Known) -> None:
        self._trajectories, self._items = trajectories, items
        self._new: set[int] = set()  # hashes of names, which take a tenth of the names' memory
        self._attempts: dict[int, int] = {}
        self._copies: dict[bytes, int] = {}

    def next_file(self) -> None:
        self._copies.clear()

    def name(self, claim: Claim, grown: bool) -> Name | None:
        """The names of a conversation; None where it is stored already.

        Args:
            grown: it is in a part that its file has grown by.
        """
        trajectory_id = claim.trajectory_id or self._trajectory_id(claim.content or b"", grown)
        return Name(trajectory_id, claim.item_id, self._attempt(claim.item_id)) if self._is_new(trajectory_id) else None

    def _trajectory_id(self, content: bytes, grown: bool) -> str:
        while True:
            copies = self._copies.get(content, 0)
            self._copies[content] = copies + 1
            trajectory_id = trajectory_id_of(content, copies)
            if not (grown and trajectory_id in self._trajectories):
                return trajectory_id

    def _is_new(self, name: str) -> bool:
        if hash(name) in self._new or name in self._trajectories:
            return False
        self._new.add(hash(name))
        return True

    def _attempt(self, item_id: str) -> int:
        """How many attempts at the item there were before."""
        before = self._attempts.get(hash(item_id), 0)
        self._attempts[hash(item_id)] = before + 1
        return self._items.count(item_id) + before
