"""Which files are read, and what they are called afterwards."""

import glob
import gzip
from pathlib import Path

import pytest

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.home import Home
from clawpipe.data.importers.sources.lines import matching
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest


def test_files_are_named_by_absolute_path(desk, make, names, monkeypatch):
    desk.write("a.jsonl", make.lines(make.chat("What is it?", "It is it."), make.group(0.0, 1.0)) + b"broken\n")
    desk.write("b.jsonl", make.lines(make.turn("s", 0, "And now?", "Now.")))
    monkeypatch.chdir(desk.folder)
    typed = ingest(desk.home, ["./a.jsonl", "b.jsonl"], Options())
    assert {row["origin"]["file"] for row in desk.rows(typed)} == {str(desk.folder / "a.jsonl"), str(desk.folder / "b.jsonl")}
    assert all(row["row_id"].startswith(f"{desk.folder / 'a.jsonl'}:3@") for row in desk.rows(typed, "quarantine"))
    other = desk.folder / "elsewhere"
    other.mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        (desk.folder / name).rename(other / name)
    moved = ingest(Home(desk.home.root / "second"), [str(other)], Options())
    stored = read_dataset(Store(Home(desk.home.root / "second").store), moved.datasets["trajectories"]).to_pylist()
    assert names(stored) == names(desk.rows(typed))


def test_links_are_followed_and_a_folder_is_entered_once(desk, make):
    (desk.folder / "deep").mkdir()
    for name, text in (("a.jsonl", "a"), ("deep/b.jsonl", "b"), ("C.JSONL", "c")):
        desk.write(name, make.lines(make.chat(text, "yes")))
    desk.write("D.Jsonl.GZ", gzip.compress(make.lines(make.chat("d", "yes"))))
    for name, target in (
        ("itself", "."),
        ("deep/up", ".."),
        ("again", "deep"),
        ("gone.jsonl", "nowhere.jsonl"),
        ("gone", "nowhere"),
    ):
        (desk.folder / name).symlink_to(target)
    (desk.folder / "round.jsonl").symlink_to("round.jsonl")
    (desk.folder / ".hidden").mkdir()
    desk.write(".hidden/e.jsonl", make.lines(make.chat("e", "yes")))
    desk.write("notes.txt", b"no line")
    done = desk.ingest()
    said = {row["messages"][0]["content"]: row["origin"]["file"].removeprefix(f"{desk.folder}/") for row in desk.rows(done)}
    assert said == {"a": "a.jsonl", "b": "deep/b.jsonl", "c": "C.JSONL", "d": "D.Jsonl.GZ"}
    assert done.refused == {"file cannot be read on: FileNotFoundError": 2, "file cannot be read on: OSError": 1}
    assert done.reading.lines == done.accepted + done.refused.total() == 7
    again = desk.ingest()
    assert (again.accepted, again.reading.lines, len(again.skipped)) == (0, 3, 4)
    (desk.folder / "nowhere.jsonl").write_bytes(make.lines(make.chat("g", "yes")))
    assert desk.ingest().accepted == 1


NAMES = ["a.jsonl", ".b.jsonl", "x/a.jsonl", "x/y/a.jsonl", "x/.h/a.jsonl", ".h/a.jsonl", "x/y/b.json", "x*/q[1].jsonl"]
PATTERNS = [
    "**/*.jsonl",
    "**",
    "x/**",
    "**/x/**/*.jsonl",
    "*/*.json*",
    "**/y/*",
    "**/.h/*",
    "x**/*",
    "**/**/a*",
    "x/[y]/**/a.jsonl",
]


@pytest.mark.parametrize("pattern", [*PATTERNS, "{root}/**/*.jsonl"])
def test_patterns_fit_what_a_shells_do(tmp_path, monkeypatch, pattern):
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    pattern = pattern.format(root=tmp_path)
    expected = {file for file in glob.glob(pattern, recursive=True) if Path(file).is_file()}
    assert expected
    assert matching(pattern) == sorted(expected)
