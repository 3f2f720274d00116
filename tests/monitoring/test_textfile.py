"""The file for node_exporter."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from clawpipe.core.config import NightConfig
from clawpipe.core.config.metrics import Metrics, Prices
from clawpipe.core.store.home import Home
from clawpipe.errors import ConfigError
from clawpipe.record.nights.files import night_id
from clawpipe.serve.monitoring.textfile import require_place, write_textfile


@pytest.fixture
def closed() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("closed")
def test_all_users_can_read_it_whatever_the_umask(tmp_path: Path):
    file = tmp_path / "clawpipe.prom"
    for text in (b"a 1\n", b"a 2\n"):
        write_textfile(str(file), text)
        assert file.read_bytes() == text
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [file]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path):
    (tmp_path / "clawpipe.prom").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_textfile(str(tmp_path / "clawpipe.prom"), b"a 1\n")
    assert [path.name for path in tmp_path.iterdir()] == ["clawpipe.prom"]


def test_it_lies_outside_the_home(home: Home, tmp_path: Path):
    home.root.mkdir()
    (tmp_path / "link").symlink_to(home.root)
    require_place(home, str(tmp_path / "clawpipe.prom"))
    for directory, why in ((home.root, "in the home"), (tmp_path / "link", "in the home"), (tmp_path / "none", "no directory")):
        with pytest.raises(ConfigError, match=why):
            require_place(home, str(directory / "clawpipe.prom"))


@pytest.mark.parametrize("path", ["clawpipe.prom", "/tmp/clawpipe.txt"])
def test_a_file_that_nobody_collects_is_refused(path: str):
    with pytest.raises(ValidationError, match=r"absolute path that ends in \.prom"):
        Metrics(textfile=path)


def test_where_figures_go_and_prices_change_no_night():
    metrics = Metrics(textfile="/x/clawpipe.prom", prices=Prices(machine_hour=1))
    assert night_id(NightConfig(night="a")) == night_id(NightConfig(night="a", metrics=metrics))
    assert NightConfig(night="a").settings() == NightConfig(night="a", metrics=metrics).settings()
