import json
import re
import subprocess
import sys

import pytest
from mlflow import MlflowClient

from clawpipe.core.system import faults
from clawpipe.errors import BusyError, DataError, NotFoundError
from clawpipe.record.registry.champions import incumbent
from clawpipe.record.registry.promotions import Move, history, log_trial, move_log, previous_champion, promote, rollback
from clawpipe.record.registry.runs import NightRun
from clawpipe.record.registry.versions import champion, register

NIGHT = {"who": "night 2030-01-02", "reason": "The candidate beats the base.", "evidence": "e" * 64, "night": "2030-01-02"}


def in_service(tracking):
    found = champion(tracking)
    return found and found.version


def moves(tracking):
    return [(move.action, move.from_version, move.to_version) for move in history(tracking)]


@pytest.fixture
def three(registry, new_package):
    """A registry with versions 1, 2 and 3."""
    for value in (0.25, 0.5, 0.75):
        register(registry, new_package(value), lambda directory: None, NightRun(night="2030-01-02"))
    return registry


def by_hand(tracking, version):
    return promote(tracking, version, who="user anne", reason="I say so.", forced=True)


def test_the_first_promotion(three, client):
    move = promote(three, "1", **NIGHT)
    assert in_service(three) == "1"
    assert (move.from_version, move.to_version, move.forced) == (None, "1", False)
    tags = client.get_model_version("agent", "1").tags
    assert tags["clawpipe.evidence"] == "e" * 64
    assert tags["clawpipe.previous"] == ""
    assert history(three) == [move]
    assert json.loads(three.log.read_text())["reason"] == NIGHT["reason"]


def test_the_second_promotion_remembers_the_first(three, client):
    promote(three, "1", **NIGHT)
    promote(three, "2", **NIGHT | {"night": "2030-01-03"}, expected="1")
    assert in_service(three) == "2"
    assert client.get_model_version("agent", "2").tags["clawpipe.previous"] == "1"
    assert moves(three) == [("promote", None, "1"), ("promote", "1", "2")]


def test_a_night_promotes_once(three):
    first = promote(three, "1", **NIGHT)
    assert promote(three, "1", **NIGHT) == first
    by_hand(three, "2")
    assert promote(three, "1", **NIGHT) == first
    assert in_service(three) == "2"
    assert len(history(three)) == 2


def test_a_version_in_service_is_not_promoted_again(three):
    promote(three, "1", **NIGHT)
    assert by_hand(three, "1") is None
    assert len(history(three)) == 1


def test_a_champion_changed_since_the_comparison_stays(three):
    made = by_hand(three, "2")
    told = rf"version 2 of agent is in service, since {re.escape(made.time)} by {made.who}, but the candidate was compared with "
    with pytest.raises(BusyError, match=f"{told}version 1") as raised:
        promote(three, "3", **NIGHT, expected="1")
    assert "another label" in raised.value.fix
    with pytest.raises(BusyError, match=f"{told}the base"):
        promote(three, "3", **NIGHT)
    assert in_service(three) == "2"


def test_a_rerun_names_its_earlier_run_as_the_promoter(three):
    promote(three, "2", **NIGHT)
    with pytest.raises(BusyError, match=r"version 2 of agent is in service, since .* by an earlier run of this night"):
        promote(three, "3", **NIGHT)
    assert in_service(three) == "2"


@pytest.mark.parametrize("version", ["9", "nine"])
def test_a_version_that_is_not_there_cannot_be_promoted(three, version):
    with pytest.raises(NotFoundError, match=f"no version {version}"):
        by_hand(three, version)
    assert in_service(three) is None
    assert history(three) == []


def test_a_resumed_night_has_the_incumbent_it_began_with(three):
    """The version that it promoted may be one that an earlier night has registered, on which the gate had held."""
    by_hand(three, "1")
    promote(three, "2", **NIGHT | {"night": "2030-01-03"}, expected="1")
    assert [incumbent(three, night).version for night in ("2030-01-03", "2030-01-04")] == ["1", "2"]


def test_a_night_killed_at_its_promotion_has_no_incumbent(three, monkeypatch):
    monkeypatch.setattr(faults, "kill_point", lambda name, *_: sys.exit(9) if name == "promote.after_alias" else None)
    with pytest.raises(SystemExit):
        promote(three, "2", **NIGHT | {"night": "2030-01-03"})
    assert in_service(three) == "2"
    assert incumbent(three, "2030-01-03") is None
    assert incumbent(three, "2030-01-04").version == "2"


def test_rollback_goes_back_step_by_step(three):
    for version in "123":
        by_hand(three, version)
    assert rollback(three, who="user anne", reason="worse in use").to_version == "2"
    assert in_service(three) == "2"
    assert rollback(three, who="user anne", reason="that one too").to_version == "1"
    with pytest.raises(NotFoundError, match="no earlier champion"):
        rollback(three, who="user anne", reason="and again")
    assert in_service(three) == "1"
    assert moves(three)[3:] == [("rollback", "3", "2"), ("rollback", "2", "1")]


def test_nothing_to_roll_back(three):
    with pytest.raises(NotFoundError, match="no earlier champion"):
        rollback(three, who="user anne", reason="")
    promote(three, "1", **NIGHT)
    with pytest.raises(NotFoundError, match="no earlier champion"):
        rollback(three, who="user anne", reason="")


def test_rollback_to_a_version_that_was_deleted_is_refused(three, client):
    by_hand(three, "1")
    by_hand(three, "2")
    client.delete_model_version("agent", "1")
    with pytest.raises(NotFoundError, match="no version 1"):
        rollback(three, who="user anne", reason="")
    assert in_service(three) == "2"


def test_rollback_from_a_champion_that_was_set_behind_our_back(three, client):
    by_hand(three, "1")
    client.set_registered_model_alias("agent", "champion", "3")
    assert rollback(three, who="user anne", reason="").to_version == "1"


@pytest.mark.parametrize("point", ["promote.before_alias", "promote.after_alias", "promote.after_log"])
def test_a_killed_promotion_leaves_one_line_after_a_retry(three, killed_at, point):
    with killed_at(point):
        promote(three, "1", **NIGHT)
    assert promote(three, "1", **NIGHT).to_version == "1"
    assert in_service(three) == "1"
    assert moves(three) == [("promote", None, "1")]
    assert list(three.home.glob("*pending*")) == []


@pytest.mark.parametrize("point", ["promote.before_alias", "promote.after_alias", "promote.after_log"])
def test_a_killed_rollback_goes_back_once(three, killed_at, point):
    for version in "123":
        by_hand(three, version)
    with killed_at(point):
        rollback(three, who="user anne", reason="")
    assert rollback(three, who="user anne", reason="").to_version == "2"
    assert in_service(three) == "2"
    assert moves(three)[3:] == [("rollback", "3", "2")]


def test_a_killed_promotion_is_logged_by_whoever_moves_next(three, killed_at):
    with killed_at("promote.after_alias"):
        promote(three, "1", **NIGHT)
    by_hand(three, "2")
    assert moves(three) == [("promote", None, "1"), ("promote", "1", "2")]


def test_a_line_that_was_cut_off_is_no_line(three):
    promote(three, "1", **NIGHT)
    with three.log.open("a") as file:
        file.write('{"id": "half')
    assert len(history(three)) == 1
    by_hand(three, "2")
    assert moves(three) == [("promote", None, "1"), ("promote", "1", "2")]


def test_a_damaged_line_is_said(three):
    promote(three, "1", **NIGHT)
    three.log.write_text("{}\n" + three.log.read_text())
    with pytest.raises(DataError, match="line 1"):
        history(three)


def test_the_log_of_another_model_is_another_history(three):
    by_hand(three, "1")
    assert history(three.model_copy(update={"model_name": "other"})) == []


def move(action, before, after):
    return Move(
        id=f"{action}-{before}-{after}",
        time="2030-01-02T03:04:05+00:00",
        model="agent",
        action=action,
        from_version=before,
        to_version=after,
        who="user",
        reason="",
        evidence="",
        forced=False,
    )


@pytest.mark.parametrize(
    ("made", "current", "previous"),
    [
        ([], None, None),
        ([], "5", None),
        ([("promote", None, "1")], "1", None),
        ([("promote", "1", "2")], "2", "1"),
        ([("promote", None, "1"), ("promote", "1", "2"), ("promote", "2", "1")], "1", "2"),
        ([("promote", None, "1"), ("promote", "1", "2"), ("rollback", "2", "1"), ("promote", "1", "3")], "3", "1"),
        ([("promote", None, "1"), ("promote", "7", "8")], "8", "7"),
        ([("promote", None, "1"), ("promote", "7", "8"), ("rollback", "8", "7")], "7", "1"),
        ([("promote", None, "1")], "7", "1"),
    ],
)
def test_where_a_rollback_leads(made, current, previous):
    assert previous_champion([move(*facts) for facts in made], current) == previous


def test_the_log_keeps_what_it_is_told(tmp_path):
    log = move_log(tmp_path / "new" / "moves.jsonl")
    assert log.read() == []
    first, second = move("promote", None, "1"), move("promote", "1", "2")
    log.append(first)
    log.append(second)
    assert log.read() == [first, second]


SCRIPT = """
import os
import sys
from pathlib import Path
import mlflow.store.model_registry.sqlalchemy_store, mlflow.store.tracking.sqlalchemy_store  # once for all children
from clawpipe.record.registry.promotions import promote
from clawpipe.record.registry.runs import NightRun
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.registry.versions import register
from clawpipe.core.store.home import Home

def night():
    tracking = Tracking.of(Home.from_env(), "agent")
    info = register(tracking, Path(sys.argv[1]), lambda directory: None, NightRun(night="2030-01-02"))
    promote(tracking, info.version, who="night 2030-01-02", reason="better", night="2030-01-02")

for point in sys.argv[2:]:
    os.environ["CLAWPIPE_KILL_AT"] = point
    if (child := os.fork()) == 0:
        night()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.slow
def test_a_repeatedly_killed_night_registers_and_promotes_once(tracking, package):
    """Real processes and SIGKILLs; each attempt gets a little further."""
    points = ["registry.before_database", "registry.after_upload", "registry.before_version", "promote.after_alias"]
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", SCRIPT, str(package), *points, ""]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["-9", "-9", "-9", "-9", "0"], done.stderr
    client = MlflowClient(tracking_uri=tracking.uri, registry_uri=tracking.uri)
    assert [version.version for version in client.search_model_versions("name='agent'")] == [1]
    assert in_service(tracking) == "1"
    assert moves(tracking) == [("promote", None, "1")]
    left = sorted(path.relative_to(tracking.home).as_posix() for path in tracking.home.rglob("*") if path.is_file())
    assert [path for path in left if not path.startswith(("store/", "mlflow/artifacts/models/"))] == [
        "id",
        "locks/id.lock",
        "locks/registry.lock",
        "mlflow/mlflow.db",
        "promotions.jsonl",
    ]


def test_trials_are_in_the_log_and_move_nothing(three):
    by_hand(three, "1")
    by_hand(three, "2")
    began = log_trial(three, "trial", "2", beside="1", who="serve", reason="10% of new sessions get it")
    log_trial(three, "trial_ended", "2", beside="1", who="serve", reason="60% of 20 answers are empty")
    assert [move.action for move in move_log(three.log).read()] == ["promote", "promote", "trial", "trial_ended"]
    assert move_log(three.log).read()[2] == began
    assert moves(three) == [("promote", None, "1"), ("promote", "1", "2")]
    assert rollback(three, who="serve", reason="worse", expected="2").to_version == "1"
    assert in_service(three) == "1"
