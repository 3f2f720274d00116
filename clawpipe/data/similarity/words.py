"""Hash runs of words (shingles) of texts, for measures of similarity.

Hashes are 64 bits of BLAKE2b, combined by arithmetic modulo 2^64: the same in every process, version and on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

SHINGLE = 5  # words
_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no word of a shingle is lost to the modulus
Hashes = np.ndarray


def word_hashes(words: Iterable[str]) -> Hashes:
    """Return one uint64 for each word."""
    return np.fromiter(map(_hash, words), np.uint64)


def shingles(hashes: Hashes) -> Hashes:
    """Return the sorted distinct hashes (uint64) of every 5 words in a row; of all words together if there are fewer."""
    size = min(SHINGLE, len(hashes))
    if not size:
        return np.empty(0, np.uint64)
    return np.unique(runs_of(hashes, size))


def runs_of(hashes: Hashes, size: int) -> Hashes:
    """Return the hash of every run of `size` words in order, uint64 [max(n - size + 1, 0)] for the hashes of n words.

    A run's hash is the polynomial size B^size + sum_i h_i B^(size - 1 - i) modulo 2^64, with B = 0x9E3779B97F4A7C15, passed through
    `scrambled`.
    """
    count = len(hashes) - size + 1
    total = np.full(max(count, 0), size, np.uint64)
    for start in range(size if count > 0 else 0):
        total = total * _BASE + hashes[start : start + count]
    return scrambled(total)


def scrambled(values: Hashes) -> Hashes:
    """Return uint64 values mixed by SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014), a bijection of 64 bits."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def jaccard(left: Hashes, right: Hashes) -> float:
    """Return |A and B| / |A or B| of two sets of distinct hashes; 0 if both are empty."""
    shared = len(np.intersect1d(left, right, assume_unique=True))
    return shared / max(len(left) + len(right) - shared, 1)


def dialogue_text(messages: Iterable[Mapping[str, Any]]) -> str:
    """Return the texts of user and assistant messages in a trajectory, with tool calls.

    System messages, which many trajectories share, and tool results are left out.
    """
    return "\n".join(text for message in messages if message["role"] in ("user", "assistant") for text in texts_of(message))


def texts_of(message: Mapping[str, Any]) -> list[str]:
    """Return the content of a message, and the names and arguments of its calls."""
    calls = message["tool_calls"] or ()
    return [message["content"] or "", *(text for call in calls for text in (call["name"] or "", call["arguments"] or ""))]


@lru_cache(maxsize=1 << 18)
def _hash(word: str) -> int:
    return int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
