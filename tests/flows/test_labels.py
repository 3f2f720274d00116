"""Which label a night has: the date of its schedule, or its own if it was interrupted."""

from __future__ import annotations

import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.core.config import NightConfig
from clawpipe.core.store.home import Home
from clawpipe.errors import BusyError, DataError
from clawpipe.record.nights.files import LINEAGE, night_label, run_dir
from clawpipe.record.nights.journal import Journal, NullWatcher
from clawpipe.record.nights.record import create_record
from clawpipe.record.nights.status import read_status
from flows.labels import labelled

BEFORE_MIDNIGHT = datetime.datetime(2026, 11, 25, 23, 59, tzinfo=datetime.UTC)
AFTER_MIDNIGHT = BEFORE_MIDNIGHT + datetime.timedelta(minutes=2)


def started(home: Home, config: NightConfig) -> Journal:
    record = create_record(home, labelled(home, config, BEFORE_MIDNIGHT), None)
    return Journal(read_status(home, record.night), NullWatcher())


def test_a_date_is_that_of_the_schedule():
    moment = datetime.datetime(2026, 11, 1, 2, 0, tzinfo=datetime.UTC)
    config = NightConfig(night="n-{date}", timezone="America/Los_Angeles")
    assert night_label(config, moment) == "n-2026-10-31"
    assert night_label(config, moment, "UTC") == "n-2026-11-01"
    assert night_label(NightConfig(night="fixed"), moment) == "fixed"


def test_the_end_of_daylight_saving_gives_no_label_twice():
    """At 02:00 UTC clocks in Miquelon show 00:00 on the day of the change and 23:00 of the same date a day later."""
    nights = [datetime.datetime(2026, 11, day, 2, 0, tzinfo=datetime.UTC) for day in (1, 2)]
    assert len({night.astimezone(ZoneInfo("America/Miquelon")).date() for night in nights}) == 1
    assert [night_label(NightConfig(), night, "UTC") for night in nights] == ["2026-11-01", "2026-11-02"]


@settings(deadline=None)
@given(
    zone=st.sampled_from(["America/Miquelon", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"]),
    first=st.dates(datetime.date(2000, 1, 1), datetime.date(2035, 1, 1)),
    hour=st.integers(0, 23),
)
def test_a_daily_schedule_gives_each_night_a_label_of_its_own(zone: str, first: datetime.date, hour: int):
    days = [first + datetime.timedelta(days=day) for day in range(3)]
    due = [datetime.datetime.combine(day, datetime.time(hour), ZoneInfo(zone)).astimezone(datetime.UTC) for day in days]
    labels = [night_label(NightConfig(), moment, zone) for moment in due]
    assert len(set(labels)) == 3 or not all(exists(day, hour, zone) for day in days)


def exists(day: datetime.date, hour: int, zone: str) -> bool:
    """Whether clocks of the zone ever show this hour of the day: Apia has had no 30 December 2011."""
    local = datetime.datetime.combine(day, datetime.time(hour), ZoneInfo(zone))
    return local.astimezone(datetime.UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None) == local.replace(tzinfo=None)


def test_a_night_killed_before_midnight_keeps_its_label_after_it(home: Home):
    config = NightConfig()
    journal = started(home, config)
    assert labelled(home, config, AFTER_MIDNIGHT).night == "2026-11-25"
    assert labelled(home, config.model_copy(update={"seed": 9}), AFTER_MIDNIGHT).night == "2026-11-26"
    assert labelled(home, config.model_copy(update={"night": "a {date}"}), AFTER_MIDNIGHT).night == "a 2026-11-26"
    (run_dir(home, journal.status.night) / LINEAGE).write_text("{}")
    assert labelled(home, config, AFTER_MIDNIGHT).night == "2026-11-26"


@pytest.mark.parametrize(
    ("error", "label"),
    [(BusyError("a service is away"), "2026-11-25"), (DataError("nothing"), "2026-11-26"), (KeyError("own"), "2026-11-26")],
)
def test_a_night_that_is_to_be_tried_again_has_not_ended(home: Home, error: Exception, label: str):
    config = NightConfig()
    with pytest.raises(type(error)), started(home, config).ended():
        raise error
    assert labelled(home, config, AFTER_MIDNIGHT).night == label


@pytest.mark.parametrize("zone", ["Mars", "", "../etc", "Europe"])
def test_a_time_zone_is_one_of_the_iana(zone: str):
    with pytest.raises(ValueError, match="time zone"):
        NightConfig(timezone=zone)
