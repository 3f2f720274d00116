"""Which ledger a home uses, by one setting."""

from __future__ import annotations

import json

import pytest

from clawpipe.core.ledger.database import DatabaseLedger
from clawpipe.core.ledger.home import HomeLedger
from clawpipe.core.ledger.open import ledger_place, open_ledger, own_registry, place_for_others, registry_uri
from clawpipe.core.store.home import Home
from clawpipe.core.store.identity import home_id
from clawpipe.errors import ConfigError
from clawpipe.record.registry.client import changes
from clawpipe.record.registry.tracking import Tracking

HTTP, SQLITE, POSTGRES = "http://mlflow.example:5000", "sqlite:////srv/mlflow.db", "postgresql://mlflow@db.example/mlflow"
STORE = "s3://bucket/prefix"


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("CLAWPIPE_LEDGER", "CLAWPIPE_STORE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    return Home(tmp_path / "home")


def place(home, uri, monkeypatch, ledger="", store=""):
    monkeypatch.setenv("CLAWPIPE_LEDGER", ledger)
    monkeypatch.setenv("CLAWPIPE_STORE", store)
    return ledger_place(home, uri)


@pytest.mark.parametrize(
    ("uri", "ledger", "store", "where"),
    [
        (SQLITE, "", "", SQLITE),
        (POSTGRES, "", STORE, POSTGRES),
        (HTTP, "", "", "home"),
        ("mysql://db.example/mlflow", "", "", "home"),
        (HTTP, "", "gs://bucket/prefix", "home"),  # nobody has tested its conditional writes
        (SQLITE, "home", STORE, "home"),
        (HTTP, POSTGRES, STORE, POSTGRES),
        (HTTP, "s3://other/ledger", "", "s3://other/ledger"),
    ],
)
def test_the_place_of_a_ledger(home, monkeypatch, uri, ledger, store, where):
    assert place(home, uri, monkeypatch, ledger, store) == where


def test_a_home_with_its_own_registry_keeps_its_own_ledger(home, monkeypatch):
    assert registry_uri(home) == own_registry(home)
    assert place(home, own_registry(home), monkeypatch, store=STORE) == "home"
    assert place(home, own_registry(home), monkeypatch, "database") == own_registry(home)


def test_registries_that_share_a_store_have_ledgers_of_their_own(home, monkeypatch):
    one = place(home, HTTP, monkeypatch, store=STORE)
    assert one.startswith("s3://bucket/prefix/.ledger/")
    assert place(home, "http://me:secret@mlflow.example:5000/", monkeypatch, store=STORE) == one
    assert place(home, "http://mlflow.example:5001", monkeypatch, store=STORE) != one


@pytest.mark.parametrize(
    ("uri", "ledger", "told"),
    [
        (HTTP, "database", "not in a database"),
        (HTTP, "store", "CLAWPIPE_STORE is not set"),
        (HTTP, "postgres", "'postgres' is no ledger"),
        (HTTP, "home:", "'home:' is no ledger"),
        (HTTP, "home:another/home", "'home:another/home' is no ledger"),
        (HTTP, "gs://bucket/prefix", "conditional writes"),
    ],
)
def test_a_setting_that_names_no_ledger_is_refused(home, monkeypatch, uri, ledger, told):
    monkeypatch.setenv("CLAWPIPE_LEDGER", ledger)
    with pytest.raises(ConfigError, match=told):
        open_ledger(home, uri)


def test_a_password_is_not_shown(home, monkeypatch):
    assert DatabaseLedger("postgresql://me:secret@db.example/mlflow").where == "postgresql://me:***@db.example/mlflow"
    monkeypatch.setenv("CLAWPIPE_LEDGER", "s3://me:secret@bucket/prefix")
    with pytest.raises(ConfigError) as raised:
        open_ledger(home, HTTP).identity()
    assert "secret" not in str(raised.value)


def test_a_trial_uses_the_ledger_of_its_sweeps_home(home, tmp_path, monkeypatch):
    monkeypatch.setenv("CLAWPIPE_LEDGER", place_for_others(home, own_registry(home)))
    ledger = open_ledger(Home(tmp_path / "trial"), own_registry(home))
    assert isinstance(ledger, HomeLedger)
    assert ledger.shared
    assert ledger.identity() == f"home:{home_id(home)}"


def test_a_home_named_to_itself_does_not_wait_for_itself(home, monkeypatch):
    """A sweep runs trials in its own process, with the trial's variables."""
    monkeypatch.setenv("CLAWPIPE_LEDGER", f"home:{home.root}")
    with changes(Tracking.of(home, "m")) as client:
        assert client.search_registered_models() == []


def test_moves_in_a_registry_of_its_own_stay_in_the_home(home, tmp_path, monkeypatch):
    """Versions of the home's own registry are not those of the one that it uses now; looks hold in any."""
    home.mlflow.mkdir(parents=True)
    (home.mlflow / "mlflow.db").touch()
    look = {"night": "monday", "draw": "monday", "time": "2030-01-02T03:04:05+00:00", "model": "agent", "environment": "shop"}
    (home.root / "looks.jsonl").write_text(json.dumps(look | {"identities": ["a"]}) + "\n")
    (home.root / "promotions.jsonl").write_text('{"id": "one", "time": "2030-01-02T03:04:05+00:00"}\n')
    monkeypatch.setenv("CLAWPIPE_LEDGER", f"file://{tmp_path}/share")
    ledger = open_ledger(home, HTTP)
    assert [json.loads(row.entry)["home"] for row in ledger.rows("looks")] == [home_id(home)]
    assert ledger.rows("promotions") == []


def test_what_homes_bring_along_is_in_the_order_of_its_time(home, tmp_path, monkeypatch):
    monkeypatch.setenv("CLAWPIPE_LEDGER", f"file://{tmp_path}/share")
    for name, times in {"A": (1, 3), "B": (2, 4)}.items():
        (tmp_path / name).mkdir()
        lines = [json.dumps({"id": f"{name}{day}", "time": f"2030-01-0{day}T00:00:00+00:00"}) for day in times]
        (tmp_path / name / "promotions.jsonl").write_text("\n".join(lines) + "\n")
    for name in "BAB":
        ledger = open_ledger(Home(tmp_path / name), HTTP)
    assert [row.name for row in sorted(ledger.rows("promotions"), key=lambda row: row.carried)] == ["A1", "B2", "A3", "B4"]


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"CLAWPIPE_LEDGER": "file://data/team", "CLAWPIPE_STORE": "file:///there"}, "CLAWPIPE_LEDGER"),
        ({"CLAWPIPE_LEDGER": "store", "CLAWPIPE_STORE": "file://there", "CLAWPIPE_SHARED": "file:///team"}, "CLAWPIPE_STORE"),
        ({"CLAWPIPE_LEDGER": "store", "CLAWPIPE_SHARED": "file://team"}, "CLAWPIPE_SHARED"),
        ({"CLAWPIPE_SHARED": "file://team", "CLAWPIPE_STORE": "file:///there"}, "CLAWPIPE_SHARED"),
        ({"CLAWPIPE_STORE": "file://there"}, "CLAWPIPE_STORE"),
    ],
)
def test_an_error_names_the_variable_that_says_where(tmp_path, monkeypatch, variables, named):
    for name in ("CLAWPIPE_LEDGER", "CLAWPIPE_STORE", "CLAWPIPE_SHARED"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"{named} is no absolute path"):
        open_ledger(Home(tmp_path), HTTP).identity()
