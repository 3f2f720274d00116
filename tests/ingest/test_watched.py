"""The list of watched paths: what is in it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clawpipe.cli.main import app
from clawpipe.data.capture.segments import Segment, segments_dir
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.watched import sources, unwatch, watch, watched
from clawpipe.errors import ConfigError, DataError

CHAT = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hey"}], "session_id": "a"}


def test_paths_are_kept_with_their_options(home, tmp_path):
    mapped, plain = Options(map=("reward=stars",), labels=tmp_path / "labels.jsonl"), Options()
    watch(home, [str(tmp_path / "a"), "s3://logs/chats"], mapped)
    watch(home, [str(tmp_path / "b")], plain)
    assert watched(home) == {mapped: (str(tmp_path / "a"), "s3://logs/chats"), plain: (str(tmp_path / "b"),)}


def test_a_path_is_read_with_the_last_options_alone(home, tmp_path):
    watch(home, [str(tmp_path)], Options(user="ana"))
    watch(home, [str(tmp_path)], Options(user="ben"))
    assert watched(home) == {Options(user="ben"): (str(tmp_path),)}
    unwatch(home, [str(tmp_path)])
    assert watched(home) == {}


def test_a_relative_path_is_found_from_elsewhere(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    watch(home, ["logs"], Options())
    assert watched(home) == {Options(): (str(tmp_path / "logs"),)}


@pytest.mark.parametrize("path", ["-", "https://ana:secret@example.org/chats.jsonl"])
def test_what_cannot_be_read_again_is_refused(home, path):
    with pytest.raises(ConfigError) as refused:
        watch(home, [path], Options())
    assert "secret@" not in str(refused.value)
    assert watched(home) == {}


def test_a_damaged_list_is_told(home):
    home.root.mkdir(exist_ok=True)
    (home.root / "watched.json").write_text('[{"paths": ["a"]}]')
    with pytest.raises(DataError, match="damaged"):
        watched(home)


def test_ingest_without_paths_reads_what_is_watched(home, tmp_path: Path):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.jsonl").write_text(json.dumps(CHAT) + "\n")
    assert CliRunner().invoke(app, ["ingest", str(folder), "--watch"]).exit_code == 0
    (folder / "b.jsonl").write_text(json.dumps(CHAT | {"session_id": "b"}) + "\n")
    [report] = json.loads(CliRunner().invoke(app, ["ingest", "--json"]).output)["watched"]
    assert (report["accepted"], report["skipped"]) == (1, 1)
    assert CliRunner().invoke(app, ["ingest", str(folder), "--no-watch"]).exit_code == 0
    assert isinstance(CliRunner().invoke(app, ["ingest"]).exception, ConfigError)


def test_what_was_captured_is_read_without_being_named(home):
    Segment(segments_dir(home)).close()
    assert sources(home) == {Options(): (str(segments_dir(home)),)}
    watch(home, [str(segments_dir(home))], Options())
    assert sources(home) == {Options(): (str(segments_dir(home)),)}
