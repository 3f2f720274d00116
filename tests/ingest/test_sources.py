"""Files that are not on this machine, and those that can be read once: URLs of the web and of S3, pipes; packed or not."""

import bz2
import gzip
import json
import logging
import lzma
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from typer.testing import CliRunner

from clawpipe.cli.main import app
from clawpipe.core.system.ports import LOOPBACK
from clawpipe.data.importers.sources.lines import find_files
from clawpipe.data.importers.sources.urls import _copy, name_of
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest
from clawpipe.data.ingest.intake.state import absolute
from clawpipe.errors import BusyError, ConfigError, NotFoundError
from clawpipe.start.proposing.report import ingest_report
from tests.importers.reading import read_files

PACK = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.ZstdCompressor().compress}


class Web:
    """A web server of files by path. `asked` are the requests: method, path with its query, and who signed in."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.headers: dict[str, dict[str, str]] = {}
        self.status: dict[str, int] = {}
        self.asked: list[tuple[str, str, str | None]] = []
        self.cut: dict[str, int] = {}
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web._answer(self)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self.host = f"{LOOPBACK}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def url(self, path: str) -> str:
        return f"http://{self.host}{path}"

    def put(self, path: str, data: bytes, **headers: str) -> str:
        self.files[path], self.headers[path] = data, {name.replace("_", "-"): value for name, value in headers.items()}
        return self.url(path)

    def gets(self) -> int:
        return sum(method == "GET" for method, _, _ in self.asked)

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        self.asked.append((request.command, request.path, request.headers["Authorization"]))
        data = self.files.get(path, b"")
        request.send_response(self.status.get(path, 200 if path in self.files else 404))
        for name, value in ({"Content-Length": str(len(data))} | self.headers.get(path, {})).items():
            request.send_header(name, value)
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(data[: self.cut.get(path)])

    def __enter__(self) -> "Web":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as web:
        yield web


@pytest.fixture
def read(home):
    """What one more run makes of what these words name."""
    return lambda *paths, **options: ingest_report(home, ingest(home, paths, Options(), **options))


def chats(make, *answers):
    return make.lines(*(make.chat("q", answer) for answer in answers))


def test_a_file_of_the_web_is_read_once_until_it_changes(web, read, make):
    url = web.put("/a.jsonl", chats(make, "1", "2"), ETag='"one"')
    assert (read(url)["trajectories"], web.gets()) == (2, 1)
    report = read(url)
    assert (report["lines"], report["skipped"], web.gets()) == (0, 1, 1)
    web.put("/a.jsonl", chats(make, "1", "2", "3"), ETag='"two"')
    report = read(url)
    assert (report["lines"], report["trajectories"], report["repeated"]) == (3, 1, 2)


@pytest.mark.parametrize("headers", [{"Last_Modified": "Sun, 22 Nov 2026 20:00:00 GMT"}, {}])
def test_time_and_size_detect_changes_else_it_is_read_again(web, read, make, headers):
    url = web.put("/a.jsonl", chats(make, "1"), **headers)
    assert (read(url)["trajectories"], read(url)["repeated"]) == (1, 0 if headers else 1)


def test_a_server_that_does_not_answer_head_is_read_all_the_same(web, read, make):
    url = web.put("/a.jsonl", chats(make, "1"))
    web.headers["/a.jsonl"]["ETag"] = '"one"'
    web._answer, answer = lambda request: request.send_error(405) if request.command == "HEAD" else answer(request), web._answer
    assert (read(url)["trajectories"], read(url)["repeated"]) == (1, 1)


def test_an_interrupted_download_keeps_whole_rows(web, read, make):
    url = web.put("/a.jsonl", chats(make, "1", "2", "3"), ETag='"one"')
    web.cut["/a.jsonl"] = len(chats(make, "1", "2")) + 5
    report = read(url)
    assert report["trajectories"] == 2
    assert report["quarantined"] == {"file cannot be read on: download broke off (RemoteProtocolError)": 1}
    assert (report["accepted"], report["lines"]) == (2, 3)
    del web.cut["/a.jsonl"]
    report = read(url)
    assert (report["trajectories"], report["repeated"], report["quarantined"]) == (1, 2, {})


def test_redirects_are_followed_without_credentials(web, read, make):
    with Web() as other:
        elsewhere = other.put("/real.jsonl", chats(make, "1"))
        web.put("/a.jsonl", b"", Location=elsewhere.replace(LOOPBACK, "localhost"))
        web.status["/a.jsonl"] = 302
        assert read(f"http://ann:hush@{web.host}/a.jsonl")["trajectories"] == 1
    assert {who for _, _, who in web.asked} == {"Basic YW5uOmh1c2g="}
    assert {who for _, _, who in other.asked} == {None}


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (404, NotFoundError, "404"),
        (401, ConfigError, "401"),
        (403, ConfigError, "403"),
        (503, BusyError, "503"),
    ],
)
def test_what_a_server_refuses_is_one_line_with_a_remedy(web, read, home, status, error, said):
    web.status["/a.jsonl"] = status
    with pytest.raises(error, match=f"HTTP {said}") as caught:
        read(f"http://ann:hush@{web.host}/a.jsonl?token=hush")
    assert caught.value.fix
    assert caught.value.where == f"http://{web.host}/a.jsonl"
    assert not (home.root / "ingest").exists()


def test_a_server_that_is_not_there_is_try_again(web, read):
    url = web.url("/a.jsonl")
    web.__exit__()
    with pytest.raises(BusyError, match="does not answer: ConnectError"):
        read(url)
    web._thread, web._server.shutdown = threading.Thread(), lambda: None
    web._thread.start()


def test_a_download_that_finds_no_room_is_try_again_and_no_row(web, read, make, monkeypatch, tmp_path, home):
    url = web.put("/a.jsonl", chats(make, "1"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(BusyError, match="no room for a download"):
        read(url)
    assert not (home.root / "ingest").exists()


def test_a_full_disk_is_told_from_a_download_that_breaks_off():
    with pytest.raises(BusyError, match="No space left"), open("/dev/full", "wb") as full:
        _copy(iter([b"x" * (1 << 20)] * 2), full, Exception)


def test_secrets_of_a_url_are_nowhere(web, read, make, home, caplog):
    caplog.set_level(logging.DEBUG)
    web.put("/a.jsonl", chats(make, "1") + b"no json\n", ETag='"one"')
    url = f"http://ann:hush-1@{web.host}/a.jsonl?token=hush-2&X-Amz-Signature=hush-3&q=hush-4#hush-5"
    report = read(url)
    shown = CliRunner().invoke(app, ["inspect", url])
    assert shown.exit_code == 0, shown.output
    files = [path for path in home.root.rglob("*") if path.is_file()]
    tables = [pq.read_table(path).to_pylist() for path in files if path.suffix == ".parquet"]
    everything = [
        json.dumps(report),
        shown.output,
        caplog.text,
        str(tables),
        *(path.read_bytes().decode("latin-1") for path in files),
    ]
    assert not any("hush" in text or "ann:" in text for text in everything)
    assert any(method == "GET" and path.endswith("q=hush-4") and who for method, path, who in web.asked)
    [row] = next(table for table in tables if table and "trajectory_id" in table[0])
    assert row["origin"]["file"] == name_of(url)


def test_a_new_signature_is_the_same_file_a_new_query_is_not(web, read, make):
    web.put("/a.jsonl", chats(make, "1"), ETag='"one"')
    assert read(web.url("/a.jsonl?id=1&X-Amz-Signature=1&X-Amz-Date=1"))["trajectories"] == 1
    assert read(web.url("/a.jsonl?id=1&X-Amz-Signature=2&X-Amz-Date=2"))["skipped"] == 1
    assert read(web.url("/a.jsonl?id=1"), web.url("/a.jsonl?id=2"))["new_files"] == 1


def test_a_table_of_the_web_has_its_rows(web, read, make, tmp_path):
    pq.write_table(pa.Table.from_pylist([make.chat("q", "1"), make.chat("q", "2")]), tmp_path / "a.parquet")
    assert read(web.put("/a.parquet", (tmp_path / "a.parquet").read_bytes()))["trajectories"] == 2


def test_keys_patterns_and_prefixes_of_s3(bucket, read, make):
    storage = fsspec.filesystem("s3")
    for key in ("logs/a.jsonl", "logs/b.jsonl.gz", "logs/deep/c.jsonl", "logs/notes.txt"):
        data = chats(make, key)
        storage.pipe_file(f"{bucket}/{key}", gzip.compress(data) if key.endswith("gz") else data)
    assert find_files([f"s3://{bucket}/logs/*.jsonl"]) == [f"s3://{bucket}/logs/a.jsonl"]
    assert find_files([f"s3://{bucket}/logs"]) == [
        f"s3://{bucket}/logs/{name}" for name in ("a.jsonl", "b.jsonl.gz", "deep/c.jsonl")
    ]
    assert read(f"s3://{bucket}/logs/a.jsonl")["trajectories"] == 1
    report = read(f"s3://{bucket}/logs")
    assert (report["trajectories"], report["skipped"]) == (2, 1)
    storage.pipe_file(f"{bucket}/logs/a.jsonl", chats(make, "logs/a.jsonl", "more"))
    storage.invalidate_cache()
    report = read(f"s3://{bucket}/logs/**/*.jsonl")
    assert (report["trajectories"], report["repeated"]) == (1, 1)


def test_what_s3_does_not_have_and_who_may_not_ask(bucket, read, monkeypatch):
    with pytest.raises(NotFoundError, match=r"bucket-none/\*\.jsonl"):
        read("s3://bucket-none/*.jsonl")
    with pytest.raises(NotFoundError, match="no file to ingest"):
        read(f"s3://{bucket}/a.jsonl")
    with pytest.raises(ConfigError, match="can only be an entire path component"):
        read(f"s3://{bucket}/**.jsonl")
    with pytest.raises(ConfigError, match="holds a password") as caught:
        read(f"s3://key:hush@{bucket}/a.jsonl")
    assert "hush" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"no://bucket/a\.jsonl cannot be opened"):
        read("no://bucket/a.jsonl")


def test_s3_without_credentials_says_which_variables(bucket, read, monkeypatch):
    import s3fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        with pytest.raises(ConfigError, match="no credentials for the storage") as caught:
            read(f"s3://{bucket}/*.jsonl")
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
    assert "AWS_ACCESS_KEY_ID" in caught.value.fix


@pytest.mark.parametrize("packing", ["plain", *PACK])
@pytest.mark.parametrize("form", ["lines", "array"])
def test_a_named_pipe_is_read_once_and_leaves_no_mark(read, make, tmp_path, packing, form):
    rows = [make.chat("q", str(number)) for number in range(2000)]
    data = make.lines(*rows) if form == "lines" else json.dumps(rows, indent=1).encode()
    os.mkfifo(tmp_path / "pipe")
    for trajectories, repeated in ((2000, 0), (0, 2000)):
        writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(PACK.get(packing, bytes)(data),))
        writer.start()
        report = read(str(tmp_path / "pipe"))
        writer.join()
        assert (report["trajectories"], report["repeated"], report["quarantined"]) == (trajectories, repeated, {})


def test_a_pipe_of_the_shell_is_read(make, tmp_path):
    (tmp_path / "a.jsonl.xz").write_bytes(lzma.compress(chats(make, "1", "2")))
    command = 'exec "$0" -m clawpipe ingest --json <(cat "$1")'
    arguments = ["bash", "-c", command, sys.executable, str(tmp_path / "a.jsonl.xz")]
    environment = os.environ | {"CLAWPIPE_HOME": str(tmp_path / "home")}
    done = subprocess.run(arguments, stdout=subprocess.PIPE, env=environment, check=True)
    assert json.loads(done.stdout)["trajectories"] == 2


@pytest.mark.parametrize("packing", PACK)
def test_packed_files_by_first_bytes_in_folders_by_name(make, tmp_path, packing):
    (tmp_path / f"a.jsonl.{packing}").write_bytes(PACK[packing](chats(make, "1")))
    (tmp_path / "b.jsonl").write_bytes(PACK[packing](chats(make, "2")))
    assert len(read_files([str(tmp_path)]).conversations) == 2


@pytest.mark.parametrize("packing", ["bz2", "xz"])
def test_whole_lines_of_a_truncated_packed_file_are_read(make, tmp_path, packing):
    answers = [os.urandom(900).hex() for _ in range(2000)]
    whole = PACK[packing](chats(make, *answers))
    (tmp_path / f"a.jsonl.{packing}").write_bytes(whole[: len(whole) - 400_000])
    reading = read_files([str(tmp_path)])
    kept = len(reading.conversations)
    assert 100 < kept < 2000
    assert [one.messages[1].content for one in reading.conversations] == answers[:kept]
    assert [refusal.reason for refusal in reading.refused] == ["file cannot be read on: EOFError"]


def test_a_grown_packed_file_is_read_again(desk, make):
    desk.write("a.jsonl.bz2", bz2.compress(chats(make, "1")))
    desk.ingest()
    desk.append("a.jsonl.bz2", bz2.compress(chats(make, "2")))
    report = desk.ingest_report()
    assert (report["trajectories"], report["repeated"]) == (1, 1)


@pytest.mark.parametrize("name", ["skip", "key", "author", "page_token", "design", "offset"])
def test_a_parameter_that_signs_nothing_tells_files_apart(name):
    """Pages of one answer were one file, and the second was never read."""
    assert name_of(f"https://host/rows?{name}=1") != name_of(f"https://host/rows?{name}=2")


@pytest.mark.parametrize("name", ["X-Amz-Signature", "sig", "se", "access_token", "api_key", "Key-Pair-Id", "Expires"])
def test_a_parameter_that_signs_does_not(name):
    assert name_of(f"https://host/rows?{name}=1") == name_of(f"https://host/rows?{name}=2")


def test_two_urls_that_differ_in_a_signature_alone_are_refused():
    with pytest.raises(ConfigError, match="signature"):
        absolute(["https://host/rows?sig=1", "https://host/rows?sig=2"])
