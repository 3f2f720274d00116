"""`clawpipe promote` and `rollback` on a real registry: who overrules the gate, and why, is in the log."""

from __future__ import annotations

import getpass
import json
import os

import pytest

from clawpipe.cli.main import run
from clawpipe.core.store.digests import sha256_json
from clawpipe.core.store.home import Home
from clawpipe.errors import ConfigError, DataError, NotFoundError
from clawpipe.record.registry.promotions import history, promote
from clawpipe.record.registry.publish import overrule
from clawpipe.record.registry.runs import NightRun
from clawpipe.record.registry.versions import champion, register


@pytest.fixture
def two(registry, new_package):
    """A registry with versions 1, in service, and 2."""
    for value in (0.25, 0.5):
        register(registry, new_package(value), lambda directory: None, NightRun(night="2030-01-02"))
    promote(registry, "1", who="night 2030-01-02", reason="better", night="2030-01-02")
    return registry


def command(*words):
    with pytest.raises(SystemExit) as end:
        run(words)
    return end.value.code


@pytest.mark.parametrize("name", ["models:/agent/2", "models:/agent@2", "agent@2"])
def test_a_held_version_is_put_in_service(two, new_adapter, facts, capsys, name):
    assert command("promote", name, "--reason", "shorter answers") == 0
    assert capsys.readouterr().out == "agent: version 2 is champion, in place of version 1\n"
    assert champion(two).version == "2"
    move = history(two)[-1]
    assert (move.action, move.from_version, move.to_version, move.forced) == ("promote", "1", "2", True)
    assert (move.who, move.reason) == (getpass.getuser(), "shorter answers")
    assert move.evidence == sha256_json(facts(new_adapter(0.5)).verdict)


def test_the_way_back_from_a_promotion_by_hand(two, capsys):
    assert command("promote", "agent@2", "-r", "a try") == command("rollback", "-m", "agent") == 0
    assert champion(two).version == "1"
    assert [move.action for move in history(two)] == ["promote", "promote", "rollback"]


def test_a_user_without_a_name_can_go_back(two, monkeypatch):
    """As in a container that runs as any user."""
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 1_234_567_890)
    assert command("promote", "agent@2", "-r", "a try") == command("rollback", "-m", "agent") == 0
    assert [move.who for move in history(two)[1:]] == ["user 1234567890"] * 2


def test_programs_are_told_the_move(two, capsys):
    assert command("promote", "agent@2", "--reason", "a try", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"moved": True, **history(two)[-1].model_dump(mode="json")}
    assert command("promote", "agent@champion", "--reason", "again", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"moved": False, "model": "agent", "to_version": "2"}
    assert len(history(two)) == 2


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["agent@9", "--reason", "x"], NotFoundError.exit_code, "the model version does not exist"),
        (["models:/other/1", "--reason", "x"], NotFoundError.exit_code, "the model version does not exist"),
        (["agent", "--reason", "x"], ConfigError.exit_code, "'agent' names no model version"),
        (["agent@2"], ConfigError.exit_code, "Missing option '--reason'"),
        (["agent@2", "--reason", " "], ConfigError.exit_code, "needs a reason"),
    ],
)
def test_what_cannot_be_promoted_is_said(two, capsys, words, code, told):
    assert command("promote", *words) == code
    assert told in capsys.readouterr().err.splitlines()[0]
    assert champion(two).version == "1"
    assert len(history(two)) == 1


def test_a_damaged_version_is_not_put_in_service(two, client):
    model = client.get_model_version("agent", "2").tags["x-clawpipe.model_id"]
    files = two.home / "mlflow" / "artifacts"
    [weights] = files.rglob(f"*{model}*/**/adapter_model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError):
        overrule(Home(two.home), "agent@2", "anne", "I say so.")
    assert champion(two).version == "1"


@pytest.mark.parametrize("point", ["promote.before_alias", "promote.after_alias", "promote.after_log"])
def test_a_killed_promotion_by_hand_is_one_line_after_a_retry(two, killed_at, point):
    with killed_at(point):
        overrule(Home(two.home), "agent@2", "anne", "I say so.")
    overrule(Home(two.home), "agent@2", "anne", "I say so.")
    assert champion(two).version == "2"
    assert [(move.who, move.forced) for move in history(two)[1:]] == [("anne", True)]


def test_without_a_registry_nothing_is_made(home, capsys):
    assert command("promote", "agent@1", "--reason", "x") == NotFoundError.exit_code
    assert "no model has been registered yet" in capsys.readouterr().err
    assert not home.root.exists()
