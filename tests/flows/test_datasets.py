"""What a night's settings name by a word: all that was ingested, the latest of it, and what no night with a verdict has used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawpipe.cli.main import app
from clawpipe.core.config import NightConfig
from clawpipe.core.store.datasets import dataset_ref, read_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.data.ingest.compaction import compact_imports
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest
from clawpipe.data.ingest.intake.state import logs
from clawpipe.errors import BusyError, ConfigError, DataError, NotFoundError
from clawpipe.learn.evaluation.heldout.holding import hold_out
from clawpipe.record.nights.files import LINEAGE, run_dir
from clawpipe.record.nights.journal import Journal, NullWatcher
from clawpipe.record.nights.record import create_record
from clawpipe.record.nights.status import RegisteredModel, read_status, write_status
from clawpipe.record.registry.promotions import Move, move_log
from flows.datasets import NothingNewError, datasets_of, named_datasets, used_by_models, waiting


def of_user(home: Home, tmp_path: Path, question: str, users: str, thumb: bool = False) -> str:
    """The digest of a dataset with a chat of each user, each letter being one."""
    lines = [
        {
            "messages": [{"role": "user", "content": f"{question} {user}"}, {"role": "assistant", "content": "yes"}],
            "session_id": f"{question}-{user}",
            "user_id": user,
            **({"reward": 1.0} if thumb else {}),
        }
        for user in users
    ]
    with (tmp_path / f"{question}.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return ingest(home, [str(tmp_path / f"{question}.jsonl")], Options()).datasets["trajectories"].digest


def users_in(home: Home, config: NightConfig) -> list[str]:
    store = open_store(home)
    refs = [dataset_ref(store, "trajectories", digest) for digest in named_datasets(home, config)["trajectories"]]
    return sorted(user for ref in refs for user in read_dataset(store, ref, ["user_id"])["user_id"].to_pylist())


@pytest.fixture
def read(home: Home, tmp_path: Path):
    """read(question): the digest of the dataset with one more chat, in a growing log."""

    def run(question: str) -> str:
        chat = [{"role": "user", "content": question}, {"role": "assistant", "content": "yes"}]
        with (tmp_path / "chats.jsonl").open("a") as file:
            file.write(json.dumps({"messages": chat, "session_id": question}) + "\n")
        return ingest(home, [str(tmp_path / "chats.jsonl")], Options()).datasets["trajectories"].digest

    return run


def night(*words: str, label: str = "a", model: str = "agent", **settings: Any) -> NightConfig:
    fields = {
        "night": label,
        "rollouts": None,
        "trajectories": words,
        "registry": {"model_name": model},
        "train": {"method": "sft"},
    }
    return NightConfig.model_validate(fields | settings)


def finished(home: Home, config: NightConfig) -> str:
    """The name of a night that has come to its verdict on what its settings name."""
    record = create_record(home, config, None, named_datasets(home, config))
    (run_dir(home, record.night) / LINEAGE).write_text("{}")
    return record.night


def test_new_is_what_no_night_with_a_verdict_has_used(home, read):
    first, second = read("one"), read("two")
    assert named_datasets(home, night("new"))["trajectories"] == (first, second)
    finished(home, night("new"))
    third = read("three")
    assert named_datasets(home, night("new", label="b"))["trajectories"] == (third,)
    assert named_datasets(home, night("all", label="b"))["trajectories"] == (first, second, third)
    assert named_datasets(home, night("latest", label="b"))["trajectories"] == (third,)


def ended(home: Home, config: NightConfig, verdict: str, version: str) -> None:
    """A night with a verdict, and the version that it registered."""
    status = read_status(home, finished(home, config))
    model = RegisteredModel(name="agent", version=version, digest="", aliases=[])
    write_status(status.model_copy(update={"verdict": verdict, "model": model}))


def test_unlearned_are_the_rows_of_nights_that_held_as_well(home, read):
    first = read("one")
    assert named_datasets(home, night("unlearned"))["trajectories"] == (first,)
    ended(home, night("unlearned"), "HOLD", "1")
    with pytest.raises(NothingNewError):  # the same rows once more would only be another look
        named_datasets(home, night("unlearned", label="b"))
    second = read("two")
    assert named_datasets(home, night("new", label="b"))["trajectories"] == (second,)
    assert named_datasets(home, night("unlearned", label="b"))["trajectories"] == (first, second)
    assert named_datasets(home, night("unlearned", label="b", model="other"))["trajectories"] == (first, second)


@pytest.mark.parametrize("verdict", ["PROMOTE", "REJECT"])
def test_a_verdict_but_hold_settles_what_taught(home, read, verdict):
    read("one")
    ended(home, night("unlearned"), "HOLD", "1")
    second = read("two")
    ended(home, night("unlearned", label="b"), verdict, "2")
    third = read("three")
    assert second != third
    assert named_datasets(home, night("unlearned", label="c"))["trajectories"] == (third,)


def test_what_a_person_promoted_has_been_learnt(home, read):
    read("one")
    ended(home, night("new"), "HOLD", "1")
    second = read("two")
    move = {"id": "x", "time": "2026-01-01T00:00:00Z", "model": "agent", "action": "promote", "from_version": None}
    move |= {"to_version": "1", "who": "eva", "reason": "", "evidence": "", "forced": True}
    move_log(home.root / "promotions.jsonl").append(Move.model_validate(move))
    assert named_datasets(home, night("unlearned", label="b"))["trajectories"] == (second,)


def test_a_killed_night_on_unlearned_rows_keeps_its_data(home, read):
    read("one")
    ended(home, night("unlearned"), "HOLD", "1")
    read("two")
    config = night("unlearned", label="b")
    record = create_record(home, config, None, named_datasets(home, config))
    read("three")
    assert len(record.datasets["trajectories"]) == 2
    assert datasets_of(home, config, record) == record.datasets


def test_the_latest_is_what_ingest_stored_last(home, tmp_path, read):
    """What a night held out of it was stored later: the next night would have trained on that."""
    whole = of_user(home, tmp_path, "how", "abcdefghij")
    split = hold_out(open_store(home), dataset_ref(open_store(home), "trajectories", whole), 0.5)
    assert 0 < split.extra("heldout").rows < 10
    assert named_datasets(home, night("latest"))["trajectories"] == (whole,)


@pytest.mark.parametrize("turns", ["ab", "ba"])
def test_the_latest_of_two_logs_is_the_later_one(home, tmp_path, turns):
    made = ""
    for log in turns:
        chat = [{"role": "user", "content": log}, {"role": "assistant", "content": "yes"}]
        (tmp_path / log).with_suffix(".jsonl").write_text(json.dumps({"messages": chat}) + "\n")
        made = ingest(home, [str(tmp_path / f"{log}.jsonl")], Options(log=log)).datasets["trajectories"].digest
    assert named_datasets(home, night("latest"))["trajectories"] == (made,)


def test_what_a_killed_night_used_is_new_to_the_next(home, read):
    first = read("one")
    config = night("new")
    create_record(home, config, None, named_datasets(home, config))  # and no verdict
    assert named_datasets(home, night("new", label="b"))["trajectories"] == (first,)


def test_a_night_that_goes_on_keeps_its_data(home, read):
    first = read("one")
    config = night("new")
    record = create_record(home, config, None, named_datasets(home, config))
    read("two")
    assert datasets_of(home, config, record) == record.datasets
    assert record.resolve(config).trajectories == (first,)
    settings = json.loads((run_dir(home, record.night) / "config.json").read_text())
    assert settings["trajectories"] == [first]  # what gc, forget and trace read


def test_a_night_that_ended_for_its_data_sees_what_has_come(home, read):
    """It read the same too few rows all day."""
    first = read("one")
    config = night("new")
    record = create_record(home, config, None, named_datasets(home, config))
    with pytest.raises(DataError), Journal(read_status(home, record.night), NullWatcher()).ended():
        raise DataError("nothing to learn from")
    second = read("two")
    assert datasets_of(home, config, record)["trajectories"] == (first, second)


def test_what_another_night_has_used_meanwhile_is_new_no_more(home, read):
    """A killed night that went on would have trained on the same rows once more."""
    read("one")
    killed = night("new")
    record = create_record(home, killed, None, named_datasets(home, killed))
    finished(home, night("new", label="b"))
    with pytest.raises(BusyError):
        datasets_of(home, killed, record)
    second = read("two")
    assert datasets_of(home, killed, record)["trajectories"] == (second,)


def test_models_use_data_independently(home, read):
    first = read("one")
    finished(home, night("new"))
    assert waiting(home, "agent", "trajectories") == []
    assert waiting(home, "other", "trajectories") == [first]
    assert used_by_models(home) == {first: frozenset({"agent"})}


def test_the_command_line_shows_what_waits(home, read, capsys):
    first = read("one")
    app(["datasets", "waiting", "-m", "agent", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["datasets"] == [{"name": "trajectories", "digest": first, "rows": 1}]
    finished(home, night("new"))
    app(["datasets", "waiting", "-m", "agent"], standalone_mode=False)
    assert capsys.readouterr().out == "nothing waits for a night of agent\n"


def test_nothing_new_says_to_come_back(home, read):
    read("one")
    finished(home, night("new"))
    with pytest.raises(BusyError, match="nothing has been ingested") as refused:
        named_datasets(home, night("new", label="b"))
    assert refused.value.exit_code == 75
    assert "`all`" in refused.value.fix


def test_joined_datasets_are_new_or_used_as_their_parts_were(home, read):
    for number in range(8):
        read(f"used {number}")
    finished(home, night("new"))
    fresh = [read(f"fresh {number}") for number in range(8)]
    assert waiting(home, "agent", "trajectories") == fresh
    compact_imports(home, used_by_models(home))
    [log] = logs(home).values()
    old, new = log.datasets["trajectories"]
    assert sorted(log.parts(new)) == sorted(digest[:32] for digest in fresh)
    assert waiting(home, "agent", "trajectories") == [new]
    assert old not in used_by_models(home)
    finished(home, night("new", label="b"))
    assert waiting(home, "agent", "trajectories") == []


def test_the_beginning_of_a_digest_names_a_dataset(home, read):
    first = read("one")
    assert named_datasets(home, night(first[:8]))["trajectories"] == (first,)
    assert named_datasets(home, night(first)) == {}
    with pytest.raises(NotFoundError, match="no such dataset"):
        named_datasets(home, night("yesterday"))


def test_a_query_selects_rows_and_leaves_the_others_new(home, tmp_path):
    whole = of_user(home, tmp_path, "one", "abc")
    query = night("user = a and since last night")
    assert users_in(home, query) == ["a"]
    finished(home, query)
    assert users_in(home, night("new", label="b")) == ["b", "c"]
    assert users_in(home, night("user != b and since last night", label="b")) == ["c"]
    assert users_in(home, night("user = a", label="b")) == ["a"]  # of everything that was ingested
    assert named_datasets(home, night("tokens = none"))["trajectories"] == (whole,)  # all of its rows: the dataset itself
    finished(home, night("new", label="b"))
    assert waiting(home, "agent", "trajectories") == []
    assert waiting(home, "other", "trajectories") == [whole]
    of_user(home, tmp_path, "two", "ac")
    assert users_in(home, night("user = a and since last night", label="c")) == ["a"]


def test_scores_come_with_the_trajectories_that_a_query_selects(home, tmp_path):
    of_user(home, tmp_path, "one", "abc", thumb=True)
    config = night("user = a and since last night", scores=["user = a and since last night"])
    store = open_store(home)
    chosen = {setting: digests for setting, digests in named_datasets(home, config).items() if digests}
    rows = {
        setting: [row for digest in digests for row in read_dataset(store, dataset_ref(store, setting, digest)).to_pylist()]
        for setting, digests in chosen.items()
    }
    assert [row["trajectory_id"] for row in rows["scores"]] == [row["trajectory_id"] for row in rows["trajectories"]]
    finished(home, config)
    left = [dataset_ref(store, "scores", digest).rows for digest in waiting(home, "agent", "scores")]
    assert left == [2]


def test_a_killed_night_leaves_rows_that_another_took(home, tmp_path):
    whole = of_user(home, tmp_path, "one", "abc")
    killed, query = night("new"), night("user = a and since last night", label="b")
    record = create_record(home, killed, None, named_datasets(home, killed))
    assert datasets_of(home, killed, record)["trajectories"] == (whole,)
    finished(home, query)
    assert users_in(home, killed) == ["b", "c"]
    assert datasets_of(home, killed, record) == named_datasets(home, killed)


def test_a_killed_query_leaves_rows_that_another_took(home, tmp_path):
    of_user(home, tmp_path, "one", "abc")
    killed = night("user = a and since last night")
    record = create_record(home, killed, None, named_datasets(home, killed))
    assert datasets_of(home, killed, record) == record.datasets
    finished(home, night("new", label="b"))
    with pytest.raises(BusyError):
        datasets_of(home, killed, record)


@pytest.mark.parametrize("text", ["colour = red", "user =", "user = a or user = b", "since yesterday", "user = a and"])
def test_a_query_that_cannot_be_read_is_refused_with_what_can(home, read, text):
    read("one")
    with pytest.raises(ConfigError, match="condition") as refused:
        named_datasets(home, night(text))
    assert "since last night" in refused.value.fix
