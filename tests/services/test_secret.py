"""The secret of a home: created once, and readable by its owner only."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from clawpipe.core.services.prefect_server import Api, environment
from clawpipe.core.services.secret import home_secret, secret_file
from clawpipe.core.store.home import Home
from clawpipe.errors import DataError


def test_concurrent_readers_get_one_secret_others_cannot_read(home: Home):
    known = os.umask(0)
    try:
        with ThreadPoolExecutor(8) as threads:
            told = set(threads.map(home_secret, [home] * 8))
    finally:
        os.umask(known)
    assert len(told) == 1
    assert len(told.pop()) > 40
    assert stat.S_IMODE(secret_file(home).stat().st_mode) == 0o600
    assert [path.name for path in home.root.iterdir() if path.is_file()] == ["secret"]


def test_two_homes_have_two(tmp_path):
    assert home_secret(Home(tmp_path / "a")) != home_secret(Home(tmp_path / "b"))


@pytest.mark.parametrize("text", [b"", b"clawpipe:", b"clawpipe:guess\n", b"\xff" * 60, b"a" * 60])
def test_a_secret_that_is_cut_or_foreign_opens_nothing(home: Home, text: bytes):
    home_secret(home)
    secret_file(home).write_bytes(text)
    with pytest.raises(DataError, match="not the secret") as failure:
        home_secret(home)
    assert failure.value.where == str(secret_file(home))


def test_a_server_of_the_users_is_not_told_the_secret(home: Home):
    assert "PREFECT_API_AUTH_STRING" not in environment(home, Api("http://theirs/api", private=False, configured=True))
    assert environment(home, Api("http://ours/api", private=False))["PREFECT_API_AUTH_STRING"] == home_secret(home)
