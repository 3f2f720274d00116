"""Files of a home that its machines share: a write replaces what its writer has read, and nothing else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from clawpipe.core.store import home_file
from clawpipe.core.store.home import Home
from clawpipe.core.store.home_file import ChangedError, HomeFile, shared_files
from clawpipe.core.store.machines import VARIABLE
from clawpipe.core.store.objects import Objects
from clawpipe.errors import ConfigError

PATH = "ingest/log.json"


@pytest.fixture(params=["s3", "file"])
def url(request, tmp_path) -> str:
    return f"file://{tmp_path}/shared" if request.param == "file" else f"s3://{request.getfixturevalue('bucket')}/home"


@pytest.fixture
def machines(url, tmp_path, monkeypatch) -> tuple[Home, Home]:
    monkeypatch.setenv(VARIABLE, url)
    return Home(tmp_path / "one"), Home(tmp_path / "two")


def test_one_machine_reads_what_another_has_written(machines):
    one, two = (HomeFile(home, PATH) for home in machines)
    assert (one.read(), two.read()) == (None, None)
    one.write(b"first")
    assert two.read() == b"first"
    two.write(b"second")
    assert one.read() == b"second"
    assert shared_files(machines[0], "ingest", ".json") == [PATH]


def test_what_a_writer_has_not_read_stays(machines, url):
    one, two = (HomeFile(home, PATH) for home in machines)
    one.write(b"first")
    with pytest.raises(ChangedError, match="another machine has written it meanwhile"):
        two.write(b"never")
    two.read()
    two.write(b"second")
    two.write(b"third")
    with pytest.raises(ChangedError):
        one.write(b"never")
    assert two.read() == b"third"
    assert Objects(url).all_in(PATH) == {"00000001": b"", "00000002": b"", "00000003": b"third"}


def test_a_number_of_long_ago_is_taken_by_nobody(machines, url, monkeypatch):
    monkeypatch.setattr(home_file, "_KEPT", 2)
    one, late = (HomeFile(home, PATH) for home in machines)
    for number in range(4):
        one.write(f"{number}".encode())
    assert Objects(url).names(PATH) == ["00000003", "00000004"]
    with pytest.raises(ChangedError):
        late.write(b"never")
    assert Objects(url).all_in(PATH) == {"00000003": b"", "00000004": b"3"}


def test_of_many_at_once_none_is_lost(machines):
    def add(number: int) -> None:
        file = HomeFile(machines[number % 2], PATH)
        while True:
            data = file.read() or b""
            try:
                return file.write(data + f"{number} ".encode())
            except ChangedError:
                continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(12)))
    data = HomeFile(machines[0], PATH).read() or b""
    assert sorted(map(int, data.split())) == list(range(12))


def test_what_a_machine_had_before_is_shared_once(machines):
    one, two = machines
    for home in machines:
        (home.root / "ingest").mkdir(parents=True)
    (one.root / PATH).write_bytes(b"mine")
    assert shared_files(one, "ingest", ".json") == [PATH]
    told = []
    assert HomeFile(one, PATH, told.append).read() == b"mine"
    assert told == [b"mine"]
    assert not (one.root / PATH).exists()
    assert HomeFile(two, PATH).read() == b"mine"

    (two.root / PATH).write_bytes(b"mine")  # as if the machine had been killed before it removed its file
    assert HomeFile(two, PATH).read() == b"mine"
    (two.root / PATH).write_bytes(b"another")
    with pytest.raises(ConfigError, match="this machine remembers something else"):
        HomeFile(two, PATH).read()
    assert (two.root / PATH).read_bytes() == b"another"


def test_a_home_of_one_machine_keeps_its_file(tmp_path):
    file = HomeFile(Home(tmp_path), PATH)
    assert file.read() is None
    file.write(b"mine")
    assert (tmp_path / PATH).read_bytes() == b"mine"
    assert shared_files(Home(tmp_path), "ingest", ".json") == [PATH]
