"""The files of a night."""

from __future__ import annotations

import datetime
import json
import os

import pytest

from clawpipe.core.config import NightConfig
from clawpipe.core.config.night import Runtime
from clawpipe.core.config.training import Train
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.errors import ConfigError, DataError, NotFoundError
from clawpipe.record.nights.files import LINEAGE, began, clear_leftovers, has_verdict, list_nights, night_id, run_dir
from clawpipe.record.nights.record import Incumbent, create_record, read_record
from clawpipe.record.nights.status import NightStatus, entry, read_status, write_status

POLICY = ModelRef(
    name="base", digest="b", base="b", base_name="tiny", tool_call_format="hermes", dtype="float32", policy_version="b"
)


def test_a_night_id_depends_on_label_and_settings_only():
    config = NightConfig(night="a")
    elsewhere = config.model_copy(update={"runtime": Runtime(workers=7, device="cuda")})
    other = config.model_copy(update={"train": Train(learning_rate=1e-6)})
    assert night_id(config) == night_id(elsewhere) != night_id(other)
    assert night_id(config).startswith("a-")


def test_the_date_is_that_of_today():
    assert night_id(NightConfig()).startswith(f"{datetime.date.today().isoformat()}-")


def test_a_record_is_read_back_with_champion_and_empty_status(home: Home):
    champion = Incumbent(version="3", night="before", policy=POLICY)
    record = create_record(home, NightConfig(night="a"), champion)
    assert read_record(home, record.night) == record
    assert record.champion == champion
    assert read_status(home, record.night) == NightStatus(night=record.night, run_dir=str(run_dir(home, record.night)))
    assert not has_verdict(home, record.night)


def test_what_was_never_there_is_told_apart_from_what_is_damaged(home: Home):
    assert read_record(home, "nowhere") is None
    with pytest.raises(NotFoundError):
        read_status(home, "nowhere")
    night = create_record(home, NightConfig(night="a"), None).night
    for name, read in (("night.json", read_record), ("status.json", read_status)):
        path = run_dir(home, night) / name
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(DataError, match=name) as damaged:
            read(home, night)
        assert damaged.value.fix


def test_a_moved_home_has_its_nights_where_it_is_now(home: Home):
    night = create_record(home, NightConfig(night="a"), None).night
    moved = Home(home.root.rename(home.root.parent / "moved"))
    assert read_status(moved, night).run_dir == str(run_dir(moved, night))


def test_a_users_folder_in_a_night_stays_and_does_no_harm(home: Home):
    """JupyterLab makes `.ipynb_checkpoints` where a file is opened; this once ended the night with a traceback."""
    night = create_record(home, NightConfig(night="a"), None).night
    folder, left = run_dir(home, night) / ".ipynb_checkpoints", run_dir(home, night) / ".status.json.0123"
    folder.mkdir()
    left.touch()
    clear_leftovers(home, night)
    assert folder.is_dir()
    assert not left.exists()


@pytest.mark.parametrize("name", ["", ".", "..", "../b", "a/b", ".hidden"])
def test_a_name_cannot_leave_the_runs(home: Home, name: str):
    with pytest.raises(NotFoundError):
        run_dir(home, name)


def test_a_name_longer_than_a_file_may_have_is_refused(home: Home):
    longest = "n" * (255 - 11)  # a hyphen and ten digits follow
    assert create_record(home, NightConfig(night=longest), None).night.startswith(longest)
    with pytest.raises(ConfigError, match="a file's name may have 255") as refused:
        create_record(home, NightConfig(night=longest + "n"), None)
    assert refused.value.where == "night"


def test_leftovers_of_a_killed_writer_go_and_nothing_else(home: Home):
    night = create_record(home, NightConfig(night="a"), None).night
    kept = sorted(run_dir(home, night).iterdir())
    (run_dir(home, night) / ".status.json.0f").write_bytes(b"{")
    clear_leftovers(home, night)
    assert sorted(run_dir(home, night).iterdir()) == kept
    clear_leftovers(home, "nowhere")


def test_nights_keep_their_order_if_one_runs_again_or_moves(home: Home):
    first, second = (create_record(home, NightConfig(night=label), None).night for label in "ba")
    assert list_nights(home) == [first, second]
    write_status(read_status(home, first))  # as a run does whose steps are all cached
    assert list_nights(home) == [first, second]
    os.utime(run_dir(home, second) / "night.json", (0, 0))
    os.utime(run_dir(home, second), (0, 0))
    assert list_nights(home) == [first, second]


def test_a_night_that_began_anew_is_the_last(home: Home):
    first, second = (create_record(home, NightConfig(night=label), None).night for label in "ab")
    create_record(home, NightConfig(night="a"), Incumbent(version="3", night="before", policy=POLICY))
    assert list_nights(home) == [second, first]


@pytest.mark.parametrize("said", ["", '"began": "",', '"began": "2026-99-01T00:00:00.000000+00:00",'])
def test_records_without_a_time_are_as_old_as_their_files(home: Home, said: str):
    made = [create_record(home, NightConfig(night=label), None).night for label in "abc"]
    for night, when in zip(made, (30, 10, 20), strict=True):
        (run_dir(home, night) / "night.json").write_text(f'{{{said} "night": "{night}", "label": "a", "champion": null}}')
        os.utime(run_dir(home, night) / "night.json", (when, when))
    later = create_record(home, NightConfig(night="A"), None).night
    assert list_nights(home) == [made[1], made[2], made[0], later]
    assert began(home, made[0]) == datetime.datetime(1970, 1, 1, 0, 0, 30, tzinfo=datetime.UTC)


def test_an_entry_names_every_artifact_by_role():
    output, quarantine = (DatasetRef(name=name, digest=name, rows=1) for name in ("trajectories", "quarantine"))
    result = StepResult(output=output, extras={"quarantine": quarantine}, rows_in=2, rows_out=1, filtered={"no tokens": 1})
    made = entry("round-1/validate", True, 0.12345, "key", result)
    assert (made.state, made.seconds, made.digest) == ("cached", 0.123, "trajectories")
    assert made.artifacts == {"output": output, "quarantine": quarantine}
    assert entry("gate", False, 1.0, None, StepResult()).digest is None


def test_a_status_that_0_2_wrote_is_read(home: Home):
    night, ref = create_record(home, NightConfig(night="a"), None).night, DatasetRef(name="samples", digest="s", rows=1)
    step = entry("curate", False, 1.0, "key", StepResult(output=ref, rows_in=3, rows_out=1, filtered={"too long": 2}))
    status = read_status(home, night).model_copy(update={"steps": [step]})
    old = status.model_dump_json().replace('"filtered"', '"set_aside"').replace('"artifacts"', '"artefacts"')
    assert old.count("set_aside") == old.count("artefacts") == 1
    (run_dir(home, night) / "status.json").write_text(old)
    assert read_status(home, night) == status


# ---- the number of a night in its curriculum

BANDS = [{"low": 0.5}, {"low": 0.2, "high": 0.5}, {"high": 0.2}]


def course(label, bands=BANDS, model="m", **sampling):
    settings = {"night": label, "registry": {"model_name": model}, "curation": {"sampling": {"curriculum": bands, **sampling}}}
    return NightConfig.model_validate(settings)


def hold(home: Home, config: NightConfig, verdict=True) -> int | None:
    """Start and end a night; return its number from its settings."""
    record = read_record(home, night_id(config)) or create_record(home, config, None)
    if verdict:
        (run_dir(home, record.night) / LINEAGE).write_text("{}")
    return record.resolve(config).curation.sampling.night


def test_curriculum_nights_are_counted_up_to_the_last_band(home: Home):
    assert [hold(home, course(label)) for label in "abcde"] == [1, 2, 3, 3, 3]


def test_a_night_without_verdict_is_uncounted_keeping_its_number(home: Home):
    assert hold(home, course("a"), verdict=False) == 1
    assert hold(home, course("b")) == 1
    assert hold(home, course("c")) == 2
    assert hold(home, course("a")) == 1
    assert hold(home, course("d")) == 3


def test_a_number_that_is_set_is_kept_and_counted_from(home: Home):
    assert hold(home, course("a", night=2)) == 2
    assert hold(home, course("b")) == 3
    assert hold(home, course("c", night=1)) == 1


def test_another_curriculum_and_another_model_begin_anew(home: Home):
    assert hold(home, course("a")) == 1
    assert hold(home, course("b", bands=BANDS[:2])) == 1
    assert hold(home, course("b", model="other")) == 1
    assert hold(home, course("b")) == 2


def test_a_nights_number_stays_when_the_champion_changes(home: Home):
    for label in "abc":
        hold(home, course(label), verdict=label != "a")
    champion = Incumbent(version="3", night="before", policy=POLICY)
    assert (create_record(home, course("a"), champion).number, create_record(home, course("d"), champion).number) == (1, 3)


def test_settings_of_another_version_are_counted(home: Home):
    hold(home, course("a"))
    path = run_dir(home, night_id(course("a"))) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"of a later version": 1}))
    assert hold(home, course("b")) == 2


@pytest.mark.parametrize("damage", ["", "[]", '{"seed": "?"}', None])
def test_an_earlier_night_with_unreadable_settings_is_skipped(home: Home, damage):
    first = course("a")
    hold(home, first)
    path = run_dir(home, night_id(first)) / "config.json"
    path.unlink() if damage is None else path.write_text(damage)
    assert hold(home, course("b")) == 1


def test_an_earlier_night_whose_number_is_none_is_left_out(home: Home):
    hold(home, course("a"))
    path = run_dir(home, night_id(course("a"))) / "config.json"
    settings = json.loads(path.read_text())
    settings["curation"]["sampling"]["night"] = "first"
    path.write_text(json.dumps(settings))
    assert hold(home, course("b")) == 1


def test_settings_without_a_curriculum_stay_as_they_are(home: Home):
    config = NightConfig(night="a")
    assert create_record(home, config, None).resolve(config) == config


def test_records_of_nights_before_there_were_numbers_can_be_read(home: Home):
    record = create_record(home, NightConfig(night="a"), None)
    path = run_dir(home, record.night) / "night.json"
    path.write_text(json.dumps({name: value for name, value in json.loads(path.read_text()).items() if name != "number"}))
    assert read_record(home, record.night) == record
