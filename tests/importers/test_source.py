"""Where lines come from, and where they stand."""

import gzip
import subprocess
import sys

import pytest
import zstandard

from clawpipe.data.importers.sources import lines as source
from clawpipe.data.importers.sources.lines import find_files, read_lines
from clawpipe.errors import NotFoundError

TEXT = b'{"a": 1}\n\n{"b": "\xc3\xa9"}\r\nlast'


@pytest.fixture(params=["plain.jsonl", "packed.jsonl.gz", "packed.jsonl.zst"])
def file(request, tmp_path):
    pack = {"gz": gzip.compress, "zst": zstandard.ZstdCompressor().compress}.get(request.param.rpartition(".")[2], bytes)
    path = tmp_path / request.param
    path.write_bytes(pack(TEXT))
    return str(path)


def test_every_line_knows_its_number_and_offset(file):
    lines = list(read_lines(file))
    assert [line.data for line in lines] == [b'{"a": 1}', b"", b'{"b": "\xc3\xa9"}', b"last"]
    assert [line.number for line in lines] == [1, 2, 3, 4]
    assert all(TEXT[line.offset :].startswith(line.data) for line in lines)


def test_a_line_beyond_the_limit_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "MAX_LINE", 10)
    (tmp_path / "a.jsonl").write_bytes(b"short\n" + b"x" * 5_000_000 + b"\nnext\n" + b"y" * 10 + b"\n" + b"z" * 11)
    lines = list(read_lines(str(tmp_path / "a.jsonl")))
    assert [(line.whole, line.number) for line in lines] == [(True, 1), (False, 2), (True, 3), (True, 4), (False, 5)]
    assert lines[2].data == b"next"
    assert lines[2].offset == 6 + 5_000_001


def test_folders_patterns_and_files_are_found_once_and_in_order(tmp_path):
    for name in ("b.jsonl", "a.jsonl.gz", "notes.txt", "deep/c.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = [path.removeprefix(f"{tmp_path}/") for path in find_files([str(tmp_path), str(tmp_path / "*.jsonl")])]
    assert names == ["a.jsonl.gz", "b.jsonl", "deep/c.json"]
    assert find_files([str(tmp_path / "notes.txt"), "-"]) == [str(tmp_path / "notes.txt"), "-"]
    with pytest.raises(NotFoundError):
        find_files([str(tmp_path / "*.parquet")])


def test_standard_input_is_read_like_a_file():
    code = "from clawpipe.data.importers.sources.lines import read_lines; print([line.data for line in read_lines('-')])"
    done = subprocess.run([sys.executable, "-c", code], input=TEXT, stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().strip() == str([b'{"a": 1}', b"", b'{"b": "\xc3\xa9"}', b"last"])
