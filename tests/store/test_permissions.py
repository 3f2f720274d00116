"""Who may read what clawpipe writes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawpipe.core.store import permissions
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.home import Home
from clawpipe.core.store.permissions import close, give_to_user, keep_private
from clawpipe.core.store.remote import Remote
from tests.permissions import bits, open_to_others


@pytest.fixture(autouse=True)
def usual_umask(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = os.umask(0o022)
    monkeypatch.setattr(permissions, "_given", None)
    yield
    os.umask(before)


def test_this_process_and_its_children_write_for_the_user_alone(home: Home, tmp_path: Path):
    keep_private()
    home.runs.mkdir(parents=True)
    subprocess.run([sys.executable, "-c", f"open({str(home.runs / 'file')!r}, 'w')"], check=True)
    assert (bits(home.root), bits(home.runs), bits(home.runs / "file")) == (0o700, 0o700, 0o600)
    assert open_to_others(home.root) == []


def test_an_empty_directory_becomes_a_closed_home(home: Home, tmp_path: Path):
    home.root.mkdir(mode=0o755)
    keep_private()
    assert bits(home.root) == 0o700
    home.root.chmod(0o755)
    (home.root / "photo").touch()
    keep_private()
    assert bits(home.root) == 0o755


@pytest.mark.parametrize(("umask", "file", "directory"), [(0o022, 0o644, 0o755), (0o002, 0o664, 0o775), (0o077, 0o600, 0o700)])
def test_exports_have_the_users_own_umask(tmp_path: Path, umask: int, file: int, directory: int):
    os.umask(umask)
    keep_private()
    keep_private()  # a flow in the process of the command
    out = tmp_path / "out"
    (out / "deep").mkdir(parents=True)
    (out / "deep" / "weights").touch()
    give_to_user(out)
    assert (bits(out), bits(out / "deep"), bits(out / "deep" / "weights")) == (directory, directory, file)


@pytest.mark.parametrize(
    ("share", "directory", "file"),
    [(0o2770, 0o2770, 0o660), (0o2750, 0o2750, 0o640), (0o755, 0o755, 0o644), (0o777, 0o775, 0o664), (0o1777, 0o700, 0o600)],
)
def test_a_shared_store_is_as_open_as_the_directory_it_lies_in(home: Home, tmp_path: Path, share: int, directory: int, file: int):
    (shared := tmp_path / "share").mkdir()
    shared.chmod(share)
    keep_private()
    store = Store(home.store, Remote(f"file://{shared}/store"))
    digest, _ = store.publish("samples", lambda place: (place / "rows").write_text("a row") and {"kind": "samples"})
    stored = shared / "store" / "samples" / digest
    assert [bits(path) for path in (shared / "store", stored.parent, stored)] == [directory] * 3
    assert {path.name: bits(path) for path in stored.iterdir()} == {"rows": file, "manifest.json": file}
    assert open_to_others(home.root) == []


def test_closing_an_old_home_follows_no_links(tmp_path: Path):
    (outside := tmp_path / "outside").touch(0o644)
    (home := tmp_path / "home").mkdir(0o755)
    (home / "store").mkdir(0o755)
    (home / "store" / "rows").touch(0o644)
    (home / "program").touch(0o755)
    (home / "secret").touch(0o600)
    (home / "link").symlink_to(outside)
    assert len(open_to_others(home)) == 4
    assert close(home) == (4, 0)
    assert open_to_others(home) == []
    assert (bits(home / "program"), bits(home / "store" / "rows"), bits(outside)) == (0o700, 0o600, 0o644)
    assert close(home) == (0, 0)
