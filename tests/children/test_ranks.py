"""Several training processes: which one this is, and how an error of any of them reaches who started them."""

import os
import socket

import pytest

from clawpipe.errors import BusyError, DataError
from clawpipe.learn.children.memory import MemoryShortError
from clawpipe.learn.children.ranks import Ranks, parted, ranks, read_error, write_error
from clawpipe.learn.training.process.torchrun import worst


def test_a_process_knows_its_place(monkeypatch):
    assert ranks() == Ranks(0, 1, 0, 1)
    told = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    monkeypatch.setattr(os, "environ", os.environ | told)  # a library may put another object in its place
    assert ranks() == Ranks(5, 8, 1, 4)
    assert not ranks().is_main


@pytest.mark.parametrize(
    ("codes", "worst_one"), [([1, -9], -9), ([1, 75], 75), ([2, 1], 2), ([1], 1), ([-15, 65], -15), ([65, 65], 65)]
)
def test_the_exit_code_that_tells_why(codes, worst_one):
    assert worst(codes) == worst_one


def test_an_error_keeps_its_class(tmp_path, monkeypatch):
    write_error(DataError("alone"), tmp_path)
    assert read_error(tmp_path) is None  # one process tells by its exit code
    monkeypatch.setitem(os.environ, "WORLD_SIZE", "2")
    for error in (DataError("no rows", "samples", "make some"), MemoryShortError("full")):
        write_error(error, tmp_path)
        back = read_error(tmp_path)
        assert (type(back), back.args) == (type(error), error.args)


def test_processes_that_do_not_meet_may_try_again(monkeypatch):
    """A port that is taken, and a process that has gone in the middle of a sum, by what torch raises."""
    distributed = pytest.importorskip("torch.distributed")
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Exception, match="listen") as refused:
        distributed.TCPStore("127.0.0.1", taken.getsockname()[1], is_master=True, wait_for_workers=False)
    gone = RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.3]:1")
    assert isinstance(parted(refused.value), BusyError)
    assert parted(gone) is None
    monkeypatch.setitem(os.environ, "WORLD_SIZE", "2")
    assert isinstance(parted(gone), BusyError)
    assert parted(RuntimeError("a bug")) is None
