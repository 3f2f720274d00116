"""Turns that were paid for, in a file: what a killed process was answered is not asked for again."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from clawpipe.core.store.digests import sha256_json
from clawpipe.model.engines.base import Completion, Sampling


def turn_key(policy: str, ids: Sequence[int], seed: int, sampling: Sampling) -> str:
    """Return the key of a turn: whatever decides it."""
    return sha256_json([policy, list(ids), seed, asdict(sampling)])[:32]


class Turns:
    """Turns by their keys, each a line of a file that is synced before the turn is used. A line that a kill cut counts as none."""

    def __init__(self, file: Path) -> None:
        self._lock = threading.Lock()
        self._found = dict(_read(file))
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> Completion | None:
        return self._found.get(key)

    def add(self, key: str, turn: Completion) -> None:
        with self._lock, self._file.open("ab") as lines:
            self._found[key] = turn
            lines.write(b"\n" + json.dumps([key, *turn]).encode())  # the line before may have been cut
            lines.flush()
            os.fsync(lines.fileno())


def _read(file: Path) -> list[tuple[str, Completion]]:
    found = []
    for line in file.read_bytes().splitlines() if file.exists() else ():
        try:
            key, ids, logprobs, reason = json.loads(line)
        except (ValueError, TypeError):
            continue
        found.append((key, Completion(ids, logprobs, reason)))
    return found
