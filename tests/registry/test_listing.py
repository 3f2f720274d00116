"""Lists of versions: what became of each, when and of what it was made."""

from __future__ import annotations

import json

import pytest

from clawpipe.cli.main import run
from clawpipe.core.config.night import Gate
from clawpipe.core.store.refs import DatasetRef
from clawpipe.learn.evaluation.verdict.gate import decide
from clawpipe.learn.evaluation.verdict.verdict import Evidence, ItemOutcome, ModelOutcomes
from clawpipe.record.registry.forgetting import registered_versions, training_datasets_of
from clawpipe.record.registry.listing import list_versions
from clawpipe.record.registry.package import write_package
from clawpipe.record.registry.promotions import promote
from clawpipe.record.registry.runs import NightRun
from clawpipe.record.registry.versions import champion, register, resolve

MONDAY, TUESDAY = "2030-01-02-abc", "2030-01-03-abc"


def outcomes(policy, solved):
    items = {f"{n}": ItemOutcome(success=n < solved, slice="all") for n in range(60)}
    return ModelOutcomes(policy_version=policy.policy_version, items=items)


@pytest.fixture
def two(registry, new_adapter, facts, store, tmp_path, home, monkeypatch):
    """Version 1 is champion; version 2 started from it and was held."""
    monkeypatch.setenv("CLAWPIPE_HOME", str(home.root))
    first, second = new_adapter(0.1), new_adapter(0.2)
    one, two = facts(first, MONDAY), facts(second, TUESDAY)
    roles = {"base": outcomes(first.model_copy(update={"policy_version": "base"}), 10), "champion": outcomes(first, 40)}
    held = decide(Evidence(**roles, candidate=outcomes(second, 41), served=second.policy_version), Gate())
    two.config["train"]["start_from"] = "champion"
    learnt = {"round-1": DatasetRef(name="samples", digest="6" * 64, rows=1)}
    for number, package in enumerate((one, two.model_copy(update={"verdict": held, "datasets": learnt}))):
        write_package(tmp_path / str(number), store, package)
        register(registry, tmp_path / str(number), lambda directory: None, NightRun(night=package.night))
        if not number:
            promote(registry, "1", who="night", reason="better", night=MONDAY)
    return registry


def command(capsys, *words: str) -> str:
    with pytest.raises(SystemExit, match="0"):
        run(["models", "list", *words])
    return capsys.readouterr().out


def test_versions_name_verdict_alias_date_and_parent(two):
    new, old = list_versions(two)
    assert [(one.version, one.verdict, one.aliases, one.night, one.parent) for one in (new, old)] == [
        ("2", "HOLD", (), TUESDAY, "1"),
        ("1", "PROMOTE", ("champion",), MONDAY, None),
    ]
    assert new.heldout.startswith("0.683 [")  # 41 of 60
    assert (new.base, new.datasets) == ("tiny", {"round-1": "6" * 64})
    assert old.made <= new.made
    assert list_versions(two, model="other") == list_versions(two, model="a' or 'b") == []
    assert [one.version for one in list_versions(two, model="agent", verdict="PROMOTE")] == ["1"]
    assert list_versions(two, limit=1) == [new]


def test_the_command_filters_and_says_what_it_leaves_out(two, capsys):
    assert [one["version"] for one in json.loads(command(capsys, "--json", "--verdict", "hold"))["versions"]] == ["2"]
    text = command(capsys, "--limit", "1")
    assert "version 1" in text  # which it started from
    assert "agent@2" in text  # as every command takes it
    assert "the newest 1; --limit shows more" in text
    assert "no such versions" in command(capsys, "--model", "other")
    with pytest.raises(SystemExit, match="2"):
        run(["models", "list", "--verdict", "good"])


def test_without_a_registry_it_says_what_makes_versions(tracking, capsys, monkeypatch):
    monkeypatch.setenv("CLAWPIPE_HOME", str(tracking.home))
    assert "`clawpipe run -c night.yaml` runs one" in command(capsys)
    assert not tracking.home.exists()


def test_tags_of_earlier_versions_are_understood(two, client):
    """Versions of 0.2 have internal tags of other names, and none that names the parent."""
    for number in ("1", "2"):
        for name, value in client.get_model_version("agent", number).tags.items():
            if name.startswith("x-clawpipe."):
                client.delete_model_version_tag("agent", number, name)
                client.set_model_version_tag("agent", number, name.removeprefix("x-"), value)
    current = champion(two)
    assert current is not None
    assert [one.version for one in list_versions(two)] == ["2", "1"]
    assert [training_datasets_of(datasets) for _, datasets in registered_versions(two)] == [{"6" * 64}, set()]
    parents = (current.policy.digest,)
    second = resolve(two, "agent@2").policy.model_copy(update={"parents": parents})
    client.set_model_version_tag("agent", "2", "clawpipe.policy", second.model_dump_json())
    client.delete_model_version_tag("agent", "2", "parent")
    assert [one.parent for one in list_versions(two)] == ["1", None]


def test_internal_tags_come_after_those_for_people(two, client):
    """MLflow's page of a version lists its tags by name."""
    names = sorted(client.get_model_version("agent", "2").tags)
    people = [name for name in names if not name.startswith("x-clawpipe.")]
    assert names[: len(people)] == people == sorted(people)
    assert {"verdict", "method", "base", "parent", "heldout.candidate"} <= set(people)
