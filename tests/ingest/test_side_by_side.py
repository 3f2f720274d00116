"""What several processes read is what one reads."""

import gzip
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.store.home import Home
from clawpipe.core.system import processes
from clawpipe.data.importers.sources.lines import Place, read_lines
from clawpipe.data.ingest.intake import intake, pieces, run
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.pieces import pieces_of
from clawpipe.data.ingest.intake.readers import Readers
from clawpipe.data.ingest.intake.run import ingest
from clawpipe.data.ingest.intake.wire import Setup
from clawpipe.errors import BusyError

pytestmark = pytest.mark.usefixtures("quick_children")

MAIL = "write to ann@acme.org"


def everything(desk, make):
    """Files of most kinds, some of them so long that they are cut."""
    chats = [make.chat(f"{MAIL} {number % 7}", f"answer {number % 5}", session_id=f"s{number % 9}") for number in range(200)]
    desk.write("a.jsonl", make.lines(*chats) + b"broken\n\n\n\n" + make.lines(*chats[:20]))
    desk.write("b.jsonl.gz", gzip.compress(make.lines(*chats[10:90])))
    turns = [
        make.turn(f"t{number}", n, *[f"{number} {word}" for word in "abcdef"[: 2 * n + 2]])
        for number in range(20)
        for n in range(3)
    ]
    desk.write("c.jsonl", make.lines(*turns))
    desk.write("d.jsonl", make.lines(*[make.judged(f"t{number}", 0, 1) for number in range(25)]))
    desk.write("e.jsonl", make.lines(*[make.group(0.0, 1.0, group=number) for number in range(5)], {"prompt": f"{MAIL}?"}))
    pair = {"prompt": "p", "chosen": f"good {MAIL}", "rejected": "bad"}
    desk.write("f.jsonl", make.lines(*[pair | {"prompt": f"p{number % 30}"} for number in range(60)]))
    claude = [{"type": role, "sessionId": "x", "uuid": f"{number}", "message": {"role": role, "content": f"{number} {MAIL}"}}
              for number, role in enumerate(["user", "assistant"] * 40)]  # fmt: skip
    desk.write("g.jsonl", make.lines(*claude))
    said = {"gen_ai.input.messages": [{"role": "user", "content": "q"}]}
    spans = [
        {"traceId": f"{number}", "attributes": said | {"gen_ai.operation.name": name, "gen_ai.output.messages": [
            {"role": "assistant", "content": f"{name} {number}"}]}}
        for name in ("invoke_agent", "chat") for number in range(30 if name == "chat" else 60)
    ]  # fmt: skip
    desk.write("h.jsonl", make.lines(*spans))
    with open(os.fsencode(desk.folder) + b"/caf\xe9.jsonl", "wb") as file:
        file.write(make.lines(make.chat("odd", "name")))


@pytest.fixture
def many_pieces(monkeypatch):
    monkeypatch.setattr(pieces, "RANGE", 1500)


def ingest_report(done):
    counted = (done.counts, done.refused, done.redactions, dict(done.of_files), done.reading.files, done.reading.lines)
    return {name: ref.digest for name, ref in done.datasets.items()}, counted, done.reading.places, done.reading.formats


def by(count, desk, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake, "SHARE", 1 if count > 1 else 1 << 60)
        patch.setattr(os, "sched_getaffinity", lambda _: set(range(count)), raising=False)
        return ingest(Home(desk.home.root / f"by-{count}"), [str(desk.folder)], Options(**options))


def test_datasets_do_not_depend_on_how_many_read(desk, make, many_pieces):
    everything(desk, make)
    labels = desk.write(
        "labels", make.lines(*[{"prompt": f"{MAIL} {number}", "score": number, "reason": MAIL} for number in range(5)])
    )
    one, three = (by(count, desk, labels=labels) for count in (1, 3))
    assert ingest_report(one) == ingest_report(three)
    assert {"trajectories", "scores", "preference_pairs", "task_items", "quarantine"} == set(one.datasets)
    assert one.counts["trajectories"] > 200
    assert one.redactions["email"] > 200


def test_what_one_has_read_several_find_nothing_new_in(desk, make, many_pieces, monkeypatch):
    everything(desk, make)
    home = desk.home
    desk.ingest()
    desk.append("a.jsonl", make.lines(make.chat("new", "yes")))
    monkeypatch.setattr(intake, "SHARE", 1)
    again = ingest(home, [str(desk.folder)], Options(), again=True)
    assert (again.counts["trajectories"], again.datasets["trajectories"].rows) == (1, 1)


@given(st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=60), st.booleans(), st.integers(1, 90))
def test_a_file_is_cut_where_lines_end(tmp_path_factory, rows, ended, size):
    file = tmp_path_factory.mktemp("cut") / "a.jsonl"
    file.write_bytes(b"{" + b"\n".join(rows) + b"\n" * ended)  # no archive begins like this
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "RANGE", size)
        found = list(pieces_of(str(file), "a", Place(), grown=False))
    assert [found[0].first, found[-1].last, found[-1].end] == [True, True, None]
    spans = [(piece.start.offset, piece.start.lines, piece.end.offset if piece.end else None) for piece in found]
    read = [line for offset, lines, end in spans for line in read_lines(str(file), offset, lines, "a", end)]
    assert read == list(read_lines(str(file), known_as="a"))


def test_a_killed_reader_ends_the_run_and_a_rerun_reads_all(desk, make, many_pieces, monkeypatch):
    everything(desk, make)
    spawned = processes.spawn

    def killed(command, **how):
        process = spawned(command, **how)
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True).stdout.split()
        for child in children or [str(process.pid)]:
            os.kill(int(child), signal.SIGKILL)
        return process

    with monkeypatch.context() as patch:
        patch.setattr(processes, "spawn", killed)
        with pytest.raises(BusyError, match="killed"):
            by(2, desk)
    whole, after = by(1, desk), by(2, desk)
    assert ingest_report(whole)[:2] == ingest_report(after)[:2]


def test_a_first_range_without_records_is_read(desk, make, many_pieces):
    """The copies of the file before it were counted on: a row was there twice."""
    desk.write("a.jsonl", make.lines(make.chat("a", "1")))
    turns = [make.turn("s", number, *[f"word {place}" for place in range(2 * number + 2)]) for number in range(30)]
    desk.write("b.jsonl", make.lines(*turns, make.chat("a", "1")))
    one, two = (by(count, desk) for count in (1, 2))
    assert ingest_report(one) == ingest_report(two)
    assert one.counts["repeated"] == 1


def test_a_stream_after_files_comes_after_their_sessions(desk, make):
    file = desk.write("a.jsonl", make.lines(make.turn("s1", 0, "And now?", "Now."), make.chat("a", "1")))
    pipe, data = desk.folder / "pipe", make.lines(make.turn("s2", 0, "x", "y"))
    digests = []
    for count in (1, 2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(intake, "SHARE", 1 if count > 1 else 1 << 60)
            patch.setattr(os, "sched_getaffinity", lambda _, count=count: set(range(count)), raising=False)
            os.mkfifo(pipe)
            code = f"open({str(pipe)!r}, 'wb').write({data!r})"
            writer = subprocess.Popen([sys.executable, "-c", code])
            done = ingest(Home(desk.home.root / f"stream-{count}"), [str(file), str(pipe)], Options())
            assert writer.wait() == 0
            pipe.unlink()
        digests.append(ingest_report(done)[0])
    assert digests[0] == digests[1]


def test_a_growing_file_with_a_multiline_record_repeats_nothing(desk, make):
    """What was read from the middle of the file on was taken for new copies each time the file grew."""
    said = [("user", "What?"), ("assistant", "That.")]
    claude = [
        {"type": role, "sessionId": "x", "uuid": f"{number}", "message": {"role": role, "content": text}}
        for number, (role, text) in enumerate(said)
    ]
    desk.write("a.jsonl", b"\n")
    desk.ingest()
    desk.append("a.jsonl", make.lines(*claude, make.chat("a", "1")))
    assert desk.ingest().counts["trajectories"] == 2
    for _ in range(2):
        desk.append("a.jsonl", b"\n")
        assert desk.ingest().counts["trajectories"] == 0


def test_a_file_that_is_cut_short_while_it_is_read_ends(desk, monkeypatch):
    monkeypatch.setattr(pieces, "RANGE", 1 << 20)
    file = desk.write("a.jsonl", b"0123456789\n" * 1_000_000)
    found = pieces_of(str(file), "a", Place(), grown=False)
    next(found)
    file.write_bytes(b"")
    assert len(list(found)) <= 2  # a reader has some bytes in its buffer


@pytest.mark.parametrize("in_place", [True, False])
def test_a_file_rewritten_while_reading_is_read_next_time(desk, make, monkeypatch, in_place):
    """Its mark vouched for lines that nobody had read."""
    file = desk.write("a.jsonl", make.lines(make.chat("old", "1")))
    anew, finish = make.lines(make.chat("new", "1"), make.chat("newer", "1")), intake.Intake.finish

    def written_anew(self):
        finish(self)
        if in_place:
            file.write_bytes(anew)
        else:
            os.replace(desk.write("other", anew), file)

    with monkeypatch.context() as patch:
        patch.setattr(intake.Intake, "finish", written_anew)
        desk.ingest()
    assert desk.ingest().counts["trajectories"] == 2


def test_a_file_that_grows_while_it_is_read_goes_on_where_it_was(desk, make, monkeypatch):
    desk.write("a.jsonl", make.lines(make.chat("a", "1")))
    finish = intake.Intake.finish
    with monkeypatch.context() as patch:
        patch.setattr(intake.Intake, "finish", lambda self: (finish(self), desk.append("a.jsonl", make.lines(make.chat("a", "2")))))
        desk.ingest()
    assert (desk.ingest().counts["trajectories"], desk.ingest().reading.lines) == (1, 0)


def test_a_file_that_vanishes_while_reading_costs_nothing(desk, make, monkeypatch):
    file = desk.write("a.jsonl", make.lines(make.chat("a", "1")))
    finish = intake.Intake.finish
    with monkeypatch.context() as patch:
        patch.setattr(intake.Intake, "finish", lambda self: (finish(self), file.unlink()))
        assert desk.ingest().counts["trajectories"] == 1


def test_a_process_that_is_killed_in_the_middle_is_told_as_such(desk, make, many_pieces, tmp_path):
    """Those that waited for it said that reading was given up."""
    everything(desk, make)
    mine = tmp_path / "mine.py"
    mine.write_text(
        "import os\n\ndef read(record):\n    os.kill(os.getpid(), 9 if record.get('session_id') == 's5' else 0)\n    return []\n"
    )
    with pytest.raises(BusyError, match="killed"):
        by(2, desk, format=f"{mine}:read")


def test_no_module_of_the_folder_that_somebody_is_in_is_imported(desk, make, many_pieces, tmp_path, monkeypatch, cold):
    everything(desk, make)
    (tmp_path / "msgspec.py").write_text("raise SystemExit('somebody else')\n")
    monkeypatch.chdir(tmp_path)
    with cold():
        assert by(2, desk).counts["trajectories"] > 200


def test_a_large_vanished_file_is_one_refusal(desk, make, many_pieces, monkeypatch):
    file = desk.write("a.jsonl", make.lines(*[make.chat("a", str(number)) for number in range(100)]))
    find = run._Part.pieces
    monkeypatch.setattr(run._Part, "pieces", lambda self: (file.unlink(missing_ok=True), find(self))[1])
    done = desk.ingest()
    assert (done.counts["trajectories"], done.refused.total()) == (0, 1)


def test_a_failed_start_of_processes_leaves_none_behind(monkeypatch, tmp_path):
    started, spawn = [], processes.spawn

    def second_fails(command, **how):
        if started:
            raise OSError("no more processes")
        started.append(spawn(command, **how))
        return started[0]

    monkeypatch.setattr(processes, "spawn", second_fails)
    with pytest.raises(OSError, match="no more"), Readers(2, Setup(os.fsencode(tmp_path), Options(), False)):
        pass
    assert started[0].poll() is not None
