"""A file that is read window by window holds what it holds as a whole."""

from __future__ import annotations

import random
import re
import tracemalloc

from clawpipe.data.forgotten.find import Findings
from clawpipe.data.forgotten.subject import Subject, pattern_of
from clawpipe.record.removal.erasure_check import ForgottenText, Traces, remains_of, traces_of
from clawpipe.record.removal.windows import Window

IDS, LINE = ["ann", "bo-7"], b"a line that only she has said"


def traces(ids: list[str], lines: tuple[bytes, ...]) -> Traces:
    longest = max(map(len, [*ids, *lines]))
    return Traces(re.compile(pattern_of(ids).encode(), re.MULTILINE), lines, longest, ForgottenText((), frozenset()))


def test_windows_of_any_size_find_what_the_whole_file_holds(tmp_path):
    draw, file, wanted = random.Random(0), tmp_path / "file", traces(IDS, (LINE,))
    pieces = ["ann", "bo-7", "x", "-", "_", " ", "\n", ",", "anna", LINE.decode(), LINE.decode()[:-1]]
    found = set[bool]()
    for _ in range(400):
        text = "".join(draw.choices(pieces, k=draw.randrange(12))).encode()
        file.write_bytes(text)
        whole = wanted.found_in(Window(text))
        assert {wanted.found_in_file(file, size) for size in (1, 2, 3, 5, 8, 13, 40)} == {whole}, text
        found.add(whole)
    assert found == {True, False}


def test_a_large_log_takes_little_memory(filled):
    log = filled.home.root / "logs" / "server.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"nothing to see here, and no end of the line " * 1_500_000 + b"but ann was here")
    tracemalloc.start()
    try:
        left = remains_of(filled.home, traces_of(filled.store, Subject(user="ann"), Findings()))
        assert str(log) in left
        assert tracemalloc.get_traced_memory()[1] < 32_000_000
    finally:
        tracemalloc.stop()
