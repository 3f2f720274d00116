"""Nights of several models in one home, and those who remove data."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from clawpipe.core.store.files import exclusive
from clawpipe.core.store.home import Home
from clawpipe.errors import BusyError
from clawpipe.record.nights.locks import RUN_LOCK, if_alone, night_held, run_held
from clawpipe.record.removal.forget import lock_home


def test_no_night_waits_for_another_models_lock(tmp_path):
    home = Home(tmp_path)
    with night_held(home, "coder"):
        with night_held(home, "writer"), pytest.raises(BusyError, match="the model coder of the home"), night_held(home, "coder"):
            pass
        with night_held(home, "writer"):
            pass


def test_commands_run_nights_of_several_models_at_once(tmp_path):
    home = Home(tmp_path)
    with run_held(home, "coder"), run_held(home, "writer"):
        with pytest.raises(BusyError, match="is in use by process"), run_held(home, "coder"):
            pass
        with pytest.raises(BusyError, match="is in use by process"), exclusive(home.locks / RUN_LOCK, "a sweep"):
            pass
    with exclusive(home.locks / RUN_LOCK, "a sweep"), pytest.raises(BusyError), run_held(home, "coder"):
        pass


def test_nobody_removes_data_of_a_night_that_runs(tmp_path):
    home = Home(tmp_path)
    with night_held(home, "coder"), ExitStack() as locks, pytest.raises(BusyError, match="is in use by process"):
        lock_home(home, locks)
    with ExitStack() as locks:
        lock_home(home, locks)
        with pytest.raises(BusyError, match="is in use by process"), night_held(home, "coder"):
            pass


def test_only_the_last_night_clears_up(tmp_path):
    home = Home(tmp_path)
    with night_held(home, "coder"):
        with if_alone(home, "coder") as is_alone:
            assert is_alone
        with night_held(home, "writer"), if_alone(home, "coder") as is_alone:
            assert not is_alone
        with if_alone(home, "coder") as is_alone:
            assert is_alone
