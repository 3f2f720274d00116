"""Which files are read, and what they are called afterwards."""

from clawpipe.ingest.options import Options
from clawpipe.ingest.run import ingest
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import read_dataset
from clawpipe.store.home import Home


def test_a_file_is_named_by_a_path_that_leads_there_from_anywhere(desk, make, names, monkeypatch):
    desk.write("a.jsonl", make.lines(make.chat("What is it?", "It is it."), make.group(0.0, 1.0)) + b"broken\n")
    desk.write("b.jsonl", make.lines(make.turn("s", 0, "And now?", "Now.")))
    monkeypatch.chdir(desk.folder)
    typed = ingest(desk.home, ["./a.jsonl", "b.jsonl"], Options())
    assert {row["origin"]["file"] for row in desk.rows(typed)} == {str(desk.folder / "a.jsonl"), str(desk.folder / "b.jsonl")}
    assert [row["row_id"] for row in desk.rows(typed, "quarantine")][0].startswith(f"{desk.folder / 'a.jsonl'}:3@")
    other = desk.folder / "elsewhere"
    other.mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        (desk.folder / name).rename(other / name)
    moved = ingest(Home(desk.home.root / "second"), [str(other)], Options())
    stored = read_dataset(Store(Home(desk.home.root / "second").store), moved.datasets["trajectories"]).to_pylist()
    assert names(stored) == names(desk.rows(typed))
