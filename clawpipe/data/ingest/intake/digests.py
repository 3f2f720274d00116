"""Sets of digests that hold millions: an import remembers what it has read, row by row."""

from __future__ import annotations

from array import array

_BITS = (1 << 64) - 1


class DigestSet:
    """A set of 64-bit numbers that are as good as random, in 12 to 24 bytes each, where one of Python's takes 60 to 100.

    It is a table with linear probing (Knuth, The Art of Computer Programming, volume 3, section 6.4, algorithm L) in which a number
    is its own hash. 0 marks an empty place, so 0 and 1 are the same number here.
    """

    def __init__(self) -> None:
        self._count, self._places = 0, array("Q", bytes(8 << 14))

    def __contains__(self, digest: int) -> bool:
        return self._places[self._find(digest & _BITS or 1)] != 0

    def add(self, digest: int) -> bool:
        """Add a number, of which the lowest 64 bits count, and return whether it is new."""
        digest = digest & _BITS or 1
        place = self._find(digest)
        if self._places[place]:
            return False
        self._places[place], self._count = digest, self._count + 1
        if 3 * self._count > 2 * len(self._places):
            self._grow()
        return True

    def _find(self, digest: int) -> int:
        """Return the place of a number, or where it belongs."""
        places, last = self._places, len(self._places) - 1
        place = digest & last
        while (there := places[place]) and there != digest:
            place = (place + 1) & last
        return place

    def _grow(self) -> None:
        before, self._places = self._places, array("Q", bytes(16 * len(self._places)))
        for digest in before:
            if digest:
                self._places[self._find(digest)] = digest


class DigestCounts:
    """How often numbers came, most of them once."""

    def __init__(self) -> None:
        self._once, self._again = DigestSet(), dict[int, int]()

    def count(self, digest: int) -> int:
        """Count a number, and return how often it came before."""
        if self._once.add(digest):
            return 0
        self._again[digest] = before = self._again.get(digest, 0) + 1
        return before
