"""The held-out items that a night draws."""

import json
from collections import Counter

import pytest

from clawpipe.core.config.environment import DrawnEnvironments
from clawpipe.core.config.night import EnvironmentConfig
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.errors import DataError
from clawpipe.learn.evaluation.heldout.draw import draw, draw_heldout, make_benchmark, make_task_items
from clawpipe.learn.evaluation.verdict.looks import Looks, look, looks_at
from clawpipe.play.environments.base import question_item
from clawpipe.play.environments.shop import ShopEnvironment
from clawpipe.record.nights.conclude import count_evidence
from clawpipe.record.nights.status import NightStatus, StepEntry

SHOP = EnvironmentConfig(name="shop", train_items=8, heldout_items=20, benchmark_items=8)
FINITE = """
from clawpipe.play.environments.base import Outcome, question_item

class Finite:
    name = "finite"
    kind = "chat"
    {extra}
    def tools(self): return []
    def preamble(self): return []
    def items(self, split, count, seed):
        names = [f"{{split}}-{{number}}" for number in range(30)][:count]
        facts = dict(part="all", truth={{}})
        return [question_item(self, split, place, identity=name, question=name, **facts) for place, name in enumerate(names)]
    def start(self, item): return None
    def verify(self, item, messages): return Outcome(1.0, True, "", {{}})
"""
SAME_ID = """
from dataclasses import replace
def replace_id(*given, **named): return replace(question_item(*given, **named), item_id="same")
"""


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def finite(tmp_path, extra="", **settings):
    """Write a user's environment with 30 held-out items."""
    file = tmp_path / "finite.py"
    file.write_text(FINITE.format(extra=extra))
    counts = {"train_items": 4, "heldout_items": 12, "benchmark_items": 4} | settings
    return EnvironmentConfig(name=f"{file}:Finite", **counts)


def identities(store, ref):
    return read_dataset(store, ref, ["identity"])["identity"].to_pylist()


def drawn_by(store, config, seen):
    return draw_heldout(store, make_task_items(store, config).dataset, make_benchmark(store, config).dataset, config, seen)


def nights(store, ledger, config, names):
    """Return each night's identities, and the details of its draw and its look."""
    for name in names:
        drawn = drawn_by(store, config, ledger.seen(name))
        looked = look(store, ledger, name, name, drawn.dataset)
        yield identities(store, drawn.dataset), drawn, looked


def test_nights_of_one_draw_find_their_items_fresh(store, home):
    ledger = Looks(home.root, "agent", "shop")
    [*_] = nights(store, ledger, SHOP, ["before"])
    ledger.begin("sweep")
    drawn = drawn_by(store, SHOP, ledger.seen("sweep"))
    looks = [look(store, ledger, name, "sweep", drawn.dataset).details for name in ("sweep-0", "sweep-1", "sweep-0")]
    assert looks == [{"identities": 20, "fresh": 20, "looks": 0.0}] * 3
    assert look(store, ledger, "after", "after", drawn.dataset).details["fresh"] == 0


def test_thirty_shop_nights_never_repeat_a_heldout_identity(store, home):
    ledger, seen = Looks(home.root, "agent", "shop"), set()
    frozen = set(identities(store, make_benchmark(store, SHOP).dataset))
    for night, (drawn, made, looked) in enumerate(nights(store, ledger, SHOP, map(str, range(30)))):
        assert len(set(drawn)) == 20
        assert not set(drawn) & seen
        assert not set(drawn) & frozen
        assert looked.details == {"identities": 20, "fresh": 20, "looks": 0.0}
        assert made.details["available"] == ShopEnvironment().distinct_items("heldout") - 8
        slices = read_dataset(store, made.dataset, ["slice"])["slice"].to_pylist()
        assert set(Counter(slices).values()) == {5}, night
        seen |= set(drawn)


def test_a_rerun_draws_the_same_items_despite_later_looks(store, home):
    ledger = Looks(home.root, "agent", "shop")
    first, second = nights(store, ledger, SHOP, ["monday", "tuesday"])
    again, *_ = nights(store, ledger, SHOP, ["monday"])
    assert again[0] == first[0] != second[0]
    assert again[2] == first[2]


def test_a_night_killed_before_its_look_uses_no_evidence(store, home):
    ledger = Looks(home.root, "agent", "shop")
    killed, other = (drawn_by(store, SHOP, ledger.seen(name)) for name in ("killed", "other"))
    assert killed.output == other.output


def test_training_data_is_kept_apart_from_benchmark_and_draw(store):
    drawn = drawn_by(store, SHOP, {})
    everything = read_dataset(store, drawn.extras["all"], ["identity", "split"]).to_pylist()
    sides = Counter(row["split"] for row in everything)
    assert sides == {"train": 8, "heldout": 28}
    assert {row["identity"] for row in everything} >= set(identities(store, make_benchmark(store, SHOP).dataset))


def test_finite_items_come_again_the_least_looked_at_first(store, home, tmp_path):
    """30 identities, 4 of them in the benchmark: two nights of 12 are fresh, the third finds 2."""
    config = finite(tmp_path, "def distinct_items(self, split): return 30")
    ledger = Looks(home.root, "agent", "finite")
    found = list(nights(store, ledger, config, "abcde"))
    assert [looked.details["fresh"] for _, _, looked in found] == [12, 12, 2, 0, 0]
    assert [looked.details["looks"] for _, _, looked in found] == [0.0, 0.0, 1.0, 1.0, 1.667]
    assert max(ledger.seen().values()) == 3
    assert min(ledger.seen().values()) == 2
    assert found[0][1].details["available"] == 26


def test_an_environment_without_a_count_gives_the_same_items(store, home, tmp_path):
    config, ledger = finite(tmp_path), Looks(home.root, "agent", "finite")
    (first, made, _), (second, _, looked) = nights(store, ledger, config, "ab")
    assert first == second == [f"heldout-{number}" for number in range(12)]
    assert looked.details == {"identities": 12, "fresh": 0, "looks": 1.0}
    assert "available" not in made.details
    assert make_benchmark(store, config).rows_out == 0


def test_an_environment_without_end_never_runs_out(store, home, tmp_path):
    config = finite(tmp_path, "def distinct_items(self, split): return None", heldout_items=5, benchmark_items=0)
    (_, made, looked), *_ = nights(store, Looks(home.root, "agent", "finite"), config, "a")
    assert made.details["available"] is None
    assert looked.details["fresh"] == 5


def test_the_benchmark_leaves_the_verdict_its_items(store, tmp_path):
    config = finite(tmp_path, "def distinct_items(self, split): return 30", heldout_items=28)
    assert make_benchmark(store, config).rows_out == 0
    assert drawn_by(store, config, {}).rows_out == 28


def test_one_item_of_each_identity_comes_before_a_second_of_any():
    items = [
        question_item(ShopEnvironment(), "heldout", place, identity=name, part="all", question=f"{name}{place}", truth={})
        for place, name in enumerate("aabbcd")
    ]
    assert [item.identity for item in draw(items, 4, {})] == ["a", "b", "c", "d"]
    assert [item.identity for item in draw(items, 3, {"a": 1})] == ["b", "c", "d"]
    assert [item.identity for item in draw(items, 5, {"a": 2, "b": 1})] == ["a", "b", "b", "c", "d"]
    assert draw(items, 6, {}) == items


def test_an_identity_on_both_sides_is_refused(store, tmp_path):
    config = finite(tmp_path)
    file = tmp_path / "finite.py"
    file.write_text(file.read_text().replace("{split}-", "both-"))
    with pytest.raises(DataError, match="'both-0' is both a train item and a held-out item"):
        drawn_by(store, config, {})


def test_a_night_with_another_seed_still_finds_unseen_items(store, home):
    """Each label has a separate seed, so every night's pool has another order; the benchmark keeps its identities."""
    ledger, benchmark, seen = Looks(home.root, "agent", "shop"), make_benchmark(store, SHOP).dataset, set()
    for seed in range(12):
        config = SHOP.model_copy(update={"seed": seed})
        made = draw_heldout(store, make_task_items(store, config).dataset, benchmark, config, ledger.seen(str(seed)))
        assert look(store, ledger, str(seed), str(seed), made.dataset).details["fresh"] == 20
        drawn = set(identities(store, made.dataset))
        assert not drawn & (seen | set(identities(store, benchmark)))
        seen |= drawn


def two(tmp_path, **settings):
    """Return the letters, weight 3, and a user's environment with 30 held-out items, weight 1."""
    single = finite(tmp_path, **settings)
    counts = {name: getattr(single, name) for name in ("train_items", "heldout_items", "benchmark_items")}
    parts = ({"name": "letters", "weight": 3}, {"name": single.name, "weight": 1})
    return DrawnEnvironments.model_validate({"parts": parts, **counts})


def test_each_environment_has_its_quota(store, tmp_path):
    config = two(tmp_path, extra="def distinct_items(self, split): return None")
    drawn = drawn_by(store, config, {})
    counts = [
        Counter(read_dataset(store, made, ["environment"])["environment"].to_pylist()) for made in parts_of(store, config, drawn)
    ]
    assert counts == [{"letters": 3, "finite": 1}, {"letters": 3, "finite": 1}, {"letters": 9, "finite": 3}]


def parts_of(store, config, drawn):
    return make_task_items(store, config).dataset, make_benchmark(store, config).dataset, drawn.dataset


def test_an_environment_without_items_to_spare_has_no_benchmark(store, tmp_path):
    config = two(tmp_path, extra="def distinct_items(self, split): return 3")
    made = read_dataset(store, make_benchmark(store, config).dataset, ["environment"])["environment"].to_pylist()
    assert made == ["letters"] * 3


def test_each_environment_says_what_is_left(store, tmp_path):
    drawn = drawn_by(store, two(tmp_path, extra="def distinct_items(self, split): return 30"), {})
    assert drawn.details["supplies"] == {
        "letters": {"available": 99_997, "left": 99_988, "known": 0, "fresh": 9, "a_night": 9, "name": "letters"},
        "finite": {"available": 29, "left": 26, "known": 0, "fresh": 3, "a_night": 3, "name": "finite"},
    }


def test_looks_at_an_environment_count_wherever_it_is_played(store, tmp_path, home):
    """Alone or beside others: a night with several draws what no night of either kind has looked at."""
    alone = finite(tmp_path, extra="def distinct_items(self, split): return 30", heldout_items=20)
    ledger = looks_at(home.root, "agent", alone)
    assert isinstance(ledger, Looks)
    [_] = nights(store, ledger, alone, ["one"])
    config = two(tmp_path, extra="def distinct_items(self, split): return 30")
    both = looks_at(home.root, "agent", config)
    assert set(both.seen()) == {f"finite/{identity}" for identity in ledger.seen()}
    drawn = drawn_by(store, config, both.seen("two"))
    assert look(store, both, "two", "two", drawn.dataset).details == {"identities": 12, "fresh": 12, "looks": 0.0}
    assert len(ledger.seen()) == 23, "three of its own more"
    assert both.seen("two").keys() == {
        f"finite/{identity}" for identity in list(ledger.seen()) if identity not in own(store, drawn)
    }
    status = count_evidence(NightStatus(night="two", run_dir="", steps=[step_of(drawn)]), both, 12)
    assert status.evidence_left
    assert status.evidence_left.sentence() == "6 of 29 held-out identities of finite are fresh, enough for 2 nights of 3 items"


def test_looks_at_one_file_of_prompts_leave_another_fresh(store, tmp_path, home):
    parts = []
    for label, weight in (("much", 3), ("little", 1)):
        lines = [json.dumps({"prompt": f"{label}: what is {number} + 1?", "answer": f"{number + 1}"}) for number in range(200)]
        (tmp_path / f"{label}.jsonl").write_text("\n".join(lines))
        options = {"file": str(tmp_path / f"{label}.jsonl"), "check": "exact"}
        parts.append({"name": "prompts", "label": label, "options": options, "weight": weight})
    config = DrawnEnvironments.model_validate({"parts": parts, "train_items": 4, "heldout_items": 40, "benchmark_items": 0})
    ledger = looks_at(home.root, "agent", config)
    for count, (_, drawn, _) in enumerate(nights(store, ledger, config, "abc"), start=1):
        left = {label: supply["left"] for label, supply in drawn.details["supplies"].items()}
        all_of = {label: supply["available"] for label, supply in drawn.details["supplies"].items()}
        assert left == {"much": max(all_of["much"] - 30 * count, 0), "little": all_of["little"] - 10 * count}
        status = count_evidence(NightStatus(night="a", steps=[step_of(drawn)]), ledger, 40)
        assert (status.evidence_left.environment, status.evidence_left.fresh) == ("much", left["much"])


def test_nights_that_did_not_say_what_they_knew_count_all_looks(store, tmp_path, home):
    config = finite(tmp_path, "def distinct_items(self, split): return 30")
    ledger = Looks(home.root, "agent", "finite")
    (_, drawn, _), *_ = nights(store, ledger, config, "a")
    old = drawn.model_copy(update={"details": {"identities": 12, "fresh": 12, "looks": 0.0, "available": 26}})
    assert count_evidence(NightStatus(night="a", steps=[step_of(old)]), ledger, 12).evidence_left.fresh == 14


def own(store, drawn):
    return {identity.removeprefix("finite/") for identity in identities(store, drawn.dataset)}


def step_of(drawn):
    counts = {"seconds": 0.0, "rows_in": 12, "rows_out": 12, "filtered": {}, "key": None, "digest": None}
    return StepEntry(name="draw_heldout", state="ran", details=drawn.details, **counts)


def test_two_items_of_one_id_are_refused(store, tmp_path):
    """Their rollouts would have one name, and be compared as those of one item."""
    config = finite(tmp_path)
    file = tmp_path / "finite.py"
    file.write_text(file.read_text().replace("return [question_item(", "return [replace_id(") + "\n" + SAME_ID)
    with pytest.raises(DataError, match="4 items have the id 'same'"):
        make_task_items(store, config)
