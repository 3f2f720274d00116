"""Names for what is read, so that what is read twice is one row and what happened twice is two."""

from __future__ import annotations

from clawpipe.importers.record import Conversation
from clawpipe.ingest.known import Known
from clawpipe.ingest.rows import Named, content_of, task_of, trajectory_id_of


class Namer:
    """Names the conversations of one run, file by file.

    Copies of a line in one file are as many trajectories: an agent may say the same thing twice. Copies in another file, or in one
    that is read again, are the trajectories that are known. The part that a file has grown by begins after all known copies.

    Args:
        trajectories, items: `trajectory_id` and `item_id` of the rows that are stored.
        user: whose conversations they are, where they do not say.
    """

    def __init__(self, trajectories: Known, items: Known, user: str | None = None) -> None:
        self._trajectories, self._items, self._user = trajectories, items, user
        self._new: set[int] = set()  # hashes of names, which take a tenth of the names' memory
        self._attempts: dict[int, int] = {}
        self._copies: dict[bytes, int] = {}

    def next_file(self) -> None:
        self._copies.clear()

    def name(self, conversation: Conversation, grown: bool) -> Named | None:
        """The conversation with its names; None where it is stored already.

        Args:
            grown: it is in a part that its file has grown by.
        """
        if conversation.row is not None:
            trajectory_id, item_id = conversation.row["trajectory_id"], conversation.row["item_id"]
        else:
            trajectory_id, item_id = self._trajectory_id(conversation, grown), task_of(conversation)
        if not self._is_new(trajectory_id):
            return None
        return Named(conversation, trajectory_id, item_id, self._attempt(item_id))

    def _trajectory_id(self, conversation: Conversation, grown: bool) -> str:
        content = content_of(conversation, self._user)
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
