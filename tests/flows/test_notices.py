"""Who is told, from whole nights and through Prefect's blocks."""

from __future__ import annotations

import datetime
import shutil

import pytest
from prefect.blocks.abstract import NotificationBlock
from prefect.blocks.core import Block
from prefect.blocks.notifications import CustomWebhookNotificationBlock, MicrosoftTeamsWebhook, SlackWebhook
from prefect.blocks.system import Secret

from clawpipe.core.config import NightConfig
from clawpipe.core.config.notify import Notify, Webhook
from clawpipe.core.store.home import Home
from clawpipe.core.system.ports import LOOPBACK, free_port
from clawpipe.errors import BusyError, StoppedError
from clawpipe.record.notifications.events import event
from clawpipe.record.notifications.outbox import Outbox
from clawpipe.record.registry.promotions import Move, move_log
from clawpipe.record.registry.tracking import Tracking
from flows import notices
from tests.notifications.receiver import receiving

BLOCK = "custom-webhook/told"


def config(*webhooks: str, blocks: tuple[str, ...] = ()) -> NightConfig:
    return NightConfig(night="a", notify=Notify(webhooks=tuple(Webhook(url=url) for url in webhooks), blocks=blocks))


def test_a_failure_is_told_and_raised(home: Home):
    with receiving() as receiver:
        with pytest.raises(BusyError), notices.told(config(receiver.url)):
            raise BusyError("the engine is gone", "http://x", "start it")
        with pytest.raises(StoppedError), notices.told(config(receiver.url)):  # whoever pressed Ctrl-C knows
            raise StoppedError("interrupted")
        [got] = [one for one in receiver.all() if one["kind"] != "disk.low"]
    assert (got["kind"], got["error"]) == ("night.failed", "http://x: the engine is gone -> start it")


def test_an_outbox_that_cannot_be_written_fails_no_night(home: Home, caplog: pytest.LogCaptureFixture):
    (home.root / "notifications.sqlite").mkdir(parents=True)
    with notices.told(config("http://127.0.0.1:9/")):
        pass
    assert "could not be told: OperationalError" in caplog.text


def test_conditions_of_the_home_are_told(home: Home, monkeypatch: pytest.MonkeyPatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2 << 30))
    now = datetime.datetime.now(datetime.UTC)
    for days, source, target, action in ((9, "4", "3", "rollback"), (1, "3", "4", "promote"), (1, "4", "2", "rollback")):
        time = (now - datetime.timedelta(days=days)).isoformat()
        kind = {"action": action, "from_version": source, "to_version": target, "reason": "too short", "who": "ana"}
        log = move_log(Tracking.of(home, "m").log)
        log.append(Move(id=f"{days}{target}", time=time, model="m", evidence="", forced=False, **kind))
    told = [(one.kind, one.text) for one in notices.conditions(home, "m")]
    assert told == [
        ("disk.low", "2.0 GiB free: make room, or move CLAWPIPE_HOME"),
        ("version.went_back", "version 2 is in service again, in place of 4: too short (ana)"),
    ]


@pytest.mark.usefixtures("prefect_api")
def test_a_block_of_prefect_sends_an_event(home: Home):
    with receiving() as receiver:
        block = CustomWebhookNotificationBlock(
            name="told", url=receiver.url, json_data={"subject": "{{subject}}", "body": "{{body}}"}
        )
        block.save("told", overwrite=True)
        notices.notify(home, config(blocks=(BLOCK,)), [event(home, "test", "hello", night="a-1")], 60)
        assert receiver.all() == [{"subject": "clawpipe home: a test message", "body": "hello\nnight: a-1"}]
    notices.notify(home, config(blocks=(BLOCK,)), [event(home, "test", "hello", night="a-2")], 60)
    [(_, receiver_name, error)] = Outbox(home).waiting()
    assert (receiver_name, error) == (f"block {BLOCK}", "the block could not send: ConnectError")


@pytest.mark.usefixtures("prefect_api")
def test_a_block_that_is_none_is_said(home: Home):
    Secret(value="hunter2").save("none", overwrite=True)
    notices.notify(home, config(blocks=("secret/none", "slack-webhook/nowhere")), [event(home, "test", "hello")], 60)
    assert {error for *_, error in Outbox(home).waiting()} == {"this block sends no notifications", "Prefect has no such block"}


@pytest.mark.usefixtures("prefect_api")
@pytest.mark.parametrize(
    ("kind", "url"),
    [
        (SlackWebhook, "https://hooks.slack.com/services/T0/B0/none"),
        (
            MicrosoftTeamsWebhook,
            "https://prod-0.westus.logic.azure.com:443/workflows/0/triggers/manual/paths/invoke?api-version=1&sig=none",
        ),
    ],
)
def test_other_blocks_are_loaded(kind: type[SlackWebhook | MicrosoftTeamsWebhook], url: str):
    """Nothing is sent to them from here."""
    kind(url=url).save("loaded", overwrite=True)
    block = Block.load(f"{kind.get_block_type_slug()}/loaded")
    assert isinstance(block, kind)
    assert isinstance(block, NotificationBlock)
    assert block.url.get_secret_value() == url


@pytest.mark.slow
def test_a_receiver_that_is_away_changes_no_night(finished, monkeypatch: pytest.MonkeyPatch):
    """The verdict is kept, and arrives when somebody is there."""
    port = free_port()
    monkeypatch.setenv("HOOK", f"http://{LOOPBACK}:{port}/T0/secret-part")
    clawpipe, told = finished.clawpipe, "notify.webhooks=[{url_env: HOOK}]"
    again = clawpipe.night(told)
    of_this_run = {"run": "", "seconds": 0, "rerun_seconds": 0, "steps": [], "evidence_left": None}
    assert again | of_this_run == finished.status | of_this_run
    assert {step["state"] for step in again["steps"] if step["key"]} == {"cached"}
    outbox = Outbox(clawpipe.home)
    assert ("night.verdict", "webhook $HOOK") in [(one.kind, receiver) for one, receiver, _ in outbox.waiting()]
    with outbox._open() as database:
        database.execute("UPDATE deliveries SET due = 0")
    with receiving(port) as receiver:
        clawpipe.night(told)
        [got] = [one for one in receiver.all() if one["kind"] == "night.verdict"]
    assert (got["night"], got["verdict"]) == (again["night"], again["verdict"])
    assert got["evidence"].startswith("candidate ")
    for file in clawpipe.home.root.rglob("*"):
        assert not file.is_file() or b"secret-part" not in file.read_bytes(), file
