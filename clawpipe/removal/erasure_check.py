"""What is left of something outside of the store: words of it in logs, reports and records, and files that still hold them.

A text is recognised by its long lines, as they are, as JSON writes them or as HTML does: a shorter one is anybody's. In rows of
Parquet files, which hold what others said too, only lines count that nobody else is known to have said.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from clawpipe.lineage.find import Findings
from clawpipe.lineage.subject import Subject, pattern_of
from clawpipe.removal.spoken import LONG, Spoken, spoken_of
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files
from clawpipe.store.files import MANIFEST, write_atomic
from clawpipe.store.home import Home


@dataclass(frozen=True)
class Traces:
    """What to look for: ids where they stand as words, and lines of text; in tables what nobody else said."""

    ids: re.Pattern[bytes]
    lines: tuple[bytes, ...]
    spoken: Spoken

    def found_in(self, data: bytes) -> bool:
        return bool(self.ids.search(data)) or any(line in data for line in self.lines)


def traces_of(store: Store, subject: Subject, found: Findings) -> Traces:
    """Call before the rows are removed."""
    texts = {text for hit in found.hits for text in _texts(store, hit.ref, hit.rows)}
    lines = {form for text in texts for line in text.splitlines() if len(line) >= LONG for form in _forms(line)}
    ids = pattern_of([subject.id, *sorted(found.sessions)])
    return Traces(
        re.compile(ids.encode(errors="surrogatepass"), re.MULTILINE), tuple(sorted(lines)), spoken_of(store, subject, found)
    )


def clean_logs(home: Home, traces: Traces) -> list[str]:
    """Take lines out of logs. Returns the logs that were changed."""
    changed = []
    for log in sorted([*home.root.glob("logs/**/*"), *home.runs.glob("*/logs/**/*")]):
        if log.is_file() and traces.found_in(data := log.read_bytes()):
            kept = [line for line in data.splitlines(keepends=True) if not traces.found_in(line)]
            write_atomic(log, b"".join(kept))
            changed.append(str(log))
    return changed


def residue(home: Home, traces: Traces) -> list[str]:
    """Files below the home that still hold any of it, rows of Parquet files among them."""
    return [str(file) for file in sorted(home.root.rglob("*")) if file.is_file() and _holds(file, traces)]


def _holds(file: Path, traces: Traces) -> bool:
    if file.suffix == ".safetensors" or file.name == MANIFEST:
        return False
    return traces.spoken.found_in(file) if file.suffix == ".parquet" else traces.found_in(file.read_bytes())


def _texts(store: Store, ref, rows: dict[int, list[int]]) -> Iterator[str]:
    """Strings in messages of these rows."""
    for number, file in enumerate(dataset_files(store, ref)):
        columns = [name for name in ("messages", "prompt", "chosen", "rejected") if name in pq.read_schema(file).names]
        if rows.get(number) and columns:
            for row in pq.read_table(file, columns=columns).take(rows[number]).to_pylist():
                yield from (text for value in row.values() for text in _said(value or ()))


def _said(messages: Iterable[dict]) -> Iterator[str]:
    for message in messages:
        yield message["content"] or ""
        yield from (call["arguments"] or "" for call in message["tool_calls"] or ())


def _forms(line: str) -> Iterator[bytes]:
    written = (line, json.dumps(line)[1:-1], json.dumps(line, ensure_ascii=False)[1:-1], html.escape(line))
    yield from (form.encode(errors="surrogatepass") for form in written)
