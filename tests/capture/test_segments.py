"""Segments: what was synced is there after any end, and what was cut short is not."""

from __future__ import annotations

import errno
import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.data.capture.records import DamagedError, Done, End, Feedback, line_of, read_line
from clawpipe.data.capture.segments import Segment, read_segment, recover, segments


def done(number: int) -> Done:
    return Done(float(number), "key", f"session-{number}")


def found(directory):
    return [one.record for path in segments(directory) for one in read_segment(path) if not isinstance(one.record, End)]


def test_a_line_is_json_with_the_crc_of_its_record():
    assert line_of(Done(1.5, "k", "s")) == b'{"crc":"%08x","record":%b}\n' % (
        zlib.crc32(b'{"kind":"done","time":1.5,"key":"k","session":"s"}'),
        b'{"kind":"done","time":1.5,"key":"k","session":"s"}',
    )


texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts, texts, st.floats(-1, 1), st.data())
def test_no_damaged_byte_goes_unnoticed(name, comment, value, data):
    record = Feedback("id", 1.0, name, response_id="r", value=value, comment=comment)
    line = line_of(record)
    assert line.count(b"\n") == 1
    assert read_line(line[:-1]) == record
    place = data.draw(st.integers(0, len(line) - 2))
    other = data.draw(st.integers(1, 255))
    with pytest.raises(DamagedError):
        read_line(line[:place] + bytes([line[place] ^ other]) + line[place + 1 : -1])
    with pytest.raises(DamagedError):
        read_line(line[:place])


@pytest.mark.parametrize("torn", [b'{"crc":"00', b"\0" * 300, line_of(done(9))[:-1], line_of(done(9))[:-5] + b"\n"])
def test_a_torn_tail_is_cut_off_and_the_rest_stays(tmp_path, torn):
    segment = Segment(tmp_path)
    segment.append(line_of(done(1)) + line_of(done(2)))
    segment.abandon()
    with segment.path.open("ab") as file:
        file.write(torn)
    assert recover(tmp_path) == {segment.path: len(torn)}
    assert found(tmp_path) == [done(1), done(2)]
    assert recover(tmp_path) == {}  # it has an end now


def test_a_segment_that_is_written_to_is_left_alone(tmp_path):
    segment = Segment(tmp_path)
    segment.append(line_of(done(1)))
    with segment.path.open("ab") as file:
        file.write(b"half a reco")
    assert recover(tmp_path) == {}
    segment.close()


def test_a_failed_write_is_taken_back(tmp_path, monkeypatch):
    """A shim over the file calls: half of the lines is written, then the disk is full."""
    segment = Segment(tmp_path)
    segment.append(line_of(done(1)))
    write = os.write

    def full(file, data):
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        segment.append(line_of(done(2)))
    monkeypatch.undo()
    segment.append(line_of(done(3)))
    assert found(tmp_path) == [done(1), done(3)]


def test_acknowledged_turns_survive_the_loss_of_unsynced_data(tmp_path, monkeypatch):
    """A shim over the file calls, in place of a power cut: what `fdatasync` has not seen is replaced by zeros and lost bytes."""
    synced: dict[str, int] = {}
    monkeypatch.setattr(os, "fdatasync", lambda file: synced.update(size=os.fstat(file).st_size))
    segment = Segment(tmp_path)
    acknowledged = []
    for number in range(50):
        segment.append(line_of(done(number)))
        acknowledged.append(done(number))
    with segment.path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(line_of(done(50)) + line_of(done(51)))  # on their way when the power went
        file.truncate(file.tell() - 7)
        file.seek(synced["size"])
        file.write(b"\0" * 40)
    segment.abandon()
    recover(tmp_path)
    assert found(tmp_path) == acknowledged
