"""Hinted rollouts, and the measurement of a teacher, with a real worker."""

import json
from functools import partial

import pyarrow as pa
import pytest

from clawpipe.core.config.night import EnvironmentConfig, NightConfig, Rollouts, Runtime
from clawpipe.core.config.training import Opd
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.learn.evaluation.heldout.draw import draw_heldout, make_benchmark, make_task_items
from clawpipe.learn.evaluation.heldout.heldout import evaluate, probe_policies
from clawpipe.learn.evaluation.probe import probe_teacher
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.version import base_ref
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.environments.letters import LettersEnvironment
from clawpipe.play.rollouts.generate import roll_out
from clawpipe.play.workers.pool import WorkerPool

LETTERS = EnvironmentConfig(
    name="letters", train_items=12, heldout_items=4, benchmark_items=0, options={"threshold": 0.0}
)  # all succeed
ROLLOUTS = Rollouts(items=6, group_size=4, temperature=1.0, max_new_tokens=3, max_turns=2, shard_rollouts=4)


@pytest.fixture(scope="module")
def pool(quick_children, tmp_path_factory):
    with WorkerPool(Runtime(device="cpu", workers=1), tmp_path_factory.mktemp("logs")) as pool:
        yield pool


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def items(store):
    made, benchmark = make_task_items(store, LETTERS).dataset, make_benchmark(store, LETTERS).dataset
    return draw_heldout(store, made, benchmark, LETTERS, {}).extra("all")


@pytest.fixture(scope="module")
def policy():
    return base_ref("random", resolve_base("random").digest, "pythonic", "float32")


def round_of(store, items, policy, successes, hints=("Say it.",)):
    """Trajectories of the given items and their scores; `successes` maps an item's place to those of its rollouts."""
    known = {row["ordinal"]: row for row in read_dataset(store, items).to_pylist() if row["split"] == "train"}
    tried, scored = [], []
    for place, outcomes in successes.items():
        for index, success in enumerate(outcomes):
            name = f"{place}/{index}"
            tried.append({"trajectory_id": name, "item_id": known[place]["item_id"], "policy_version": policy.policy_version})
            verdict = {"trajectory_id": name, "scorer": "v", "origin": "verifier", "value": float(success), "success": success}
            scored.append(verdict | {"reason": "", "evidence": json.dumps({}), "hints": list(hints) or None})
    tables = {name: pa.Table.from_pylist(rows, schema_of(name)) for name, rows in (("trajectories", tried), ("scores", scored))}
    return [publish_dataset(store, name, [table]) for name, table in tables.items()]


def probe(store, pool, tmp_path, items, made, policy, **opd):
    trajectories, scores = made
    config = Opd(**({"probe_items": 8} | opd))
    work = tmp_path / "work"
    return probe_teacher(store, pool, work, items, [trajectories], [scores], policy, policy, LETTERS, ROLLOUTS, config, seed=5)


def test_a_teacher_is_compared_item_by_item(store, pool, tmp_path, items, policy):
    made = round_of(store, items, policy, {place: [True, False, False, False] for place in range(9)})
    result = probe(store, pool, tmp_path, items, made, policy)
    assert result.details == {
        "allowed": True,
        "n": 8,
        "teacher_success": 1.0,
        "student_success": 0.25,
        "gain": 0.75,
        "gain_low": 0.75,
        "teacher_where_student_fails": 1.0,
    }
    assert (result.rows_in, result.rows_out, result.dataset.name) == (8, 8, "eval_results")
    assert {policy.digest, items.digest, made[1].digest} <= set(result.dataset.parents)
    rows = read_dataset(store, result.dataset).to_pylist()
    assert len({row["item_id"] for row in rows}) == 8
    again = probe(store, pool, tmp_path, items, made, policy)
    assert again.dataset.digest == result.dataset.digest


def test_an_episode_of_several_rows_is_one_try_of_the_student(store, pool, tmp_path, items, policy):
    """Each item has a success, and a failure that left three rows."""
    tried, scores = round_of(store, items, policy, {place: [True, False, False, False] for place in range(8)})
    rows = read_dataset(store, tried).to_pylist()
    for row in rows:
        place, index = row["trajectory_id"].split("/")
        part = {"part": int(index) - 1} if index in "23" else {}
        row["extra"] = json.dumps({"episode": f"{place}/1"} | part) if index != "0" else None
    tried = publish_dataset(store, "trajectories", [pa.Table.from_pylist(rows, schema_of("trajectories"))])
    assert probe(store, pool, tmp_path, items, (tried, scores), policy).details["student_success"] == 0.5


def test_the_teacher_sees_the_hint_and_the_record_does_not(store, pool, tmp_path, items, policy):
    made = round_of(store, items, policy, {place: [False] for place in range(8)}, hints=["Say it again.", "Say it."])
    result = probe(store, pool, tmp_path, items, made, policy)
    environment = LettersEnvironment()
    renderer = Renderer(load_tokenizer(resolve_base("random").path), "pythonic", environment.tools())
    known = {row["item_id"]: row["messages"][0]["content"] for row in read_dataset(store, items).to_pylist()}
    for row in read_dataset(store, result.extras["trajectories"]).to_pylist():
        question = known[row["item_id"]]
        hinted = Message("user", f"{question}\n\n<hint>\nSay it.\n</hint>")
        prompt = renderer.prompt([*environment.preamble(), hinted])
        assert row["token_ids"][: row["prompt_tokens"]] == prompt
        assert row["messages"][0]["content"] == question
        assert (row["temperature"], row["rollout_index"]) == (1.0, 0)


def test_hints_that_no_environment_can_try_may_be_trusted(store, tmp_path, items, policy):
    made = round_of(store, items, policy, {place: [False] for place in range(2)}, hints=())
    result = probe(store, None, tmp_path, items, made, policy, probe_items=0)
    assert (result.output, result.details) == (None, {"allowed": True, "n": 0})
    with pytest.raises(ValueError, match="probe_items"):
        Opd(probe_items=3)


def test_stored_conversations_have_no_item_to_try_a_hint_on(store, tmp_path, items, policy):
    row = {"trajectory_id": "t", "item_id": "of-no-environment", "policy_version": "p"}
    trajectories = publish_dataset(store, "trajectories", [pa.Table.from_pylist([row], schema=schema_of("trajectories"))])
    score = {"trajectory_id": "t", "turn": 0, "scorer": "rules", "origin": "judge", "value": -1.0, "reason": "", "evidence": "{}"}
    scores = publish_dataset(store, "scores", [pa.Table.from_pylist([score | {"hints": ["Say it."]}], schema=schema_of("scores"))])
    asked = (policy, policy, LETTERS, ROLLOUTS, Opd(), 0)
    probed = probe_teacher(store, None, tmp_path, items, [trajectories], [scores], *asked)  # type: ignore[arg-type]
    assert (probed.details["allowed"], probed.details["n"], probed.details["untried"]) == (False, 0, True)
    assert "no hint could be tried" in probed.details["warnings"][0]


def test_held_out_items_and_items_without_a_hint_are_not_asked(store, pool, tmp_path, items, policy):
    made = round_of(store, items, policy, {place: [False] for place in range(9)}, hints=())
    result = probe(store, pool, tmp_path, items, made, policy)
    assert (result.rows_in, result.details, result.extras) == (0, {"allowed": False, "n": 0}, {})
    heldout = [row["item_id"] for row in read_dataset(store, items).to_pylist() if row["split"] == "heldout"]
    tried = pa.Table.from_pylist([{"trajectory_id": "0/0", "item_id": heldout[0]}], schema_of("trajectories"))
    _, scores = round_of(store, items, policy, {0: [False]})
    other = probe(store, pool, tmp_path, items, [publish_dataset(store, "trajectories", [tried]), scores], policy)
    assert other.rows_in == 0


def test_the_students_own_rollouts_count_before_those_of_others(store, pool, tmp_path, items, policy):
    stale = policy.model_copy(update={"policy_version": "older"})
    own_tried, own_scored = round_of(store, items, policy, {place: [False] for place in range(4)})
    made = round_of(store, items, stale, {place: [False, True] for place in range(8)})
    older = [_renamed(store, ref) for ref in made]
    config = Opd(probe_items=8)
    work = tmp_path / "work"
    result = probe_teacher(
        store,
        pool,
        work,
        items,
        [own_tried, older[0]],
        [own_scored, older[1]],
        policy,
        policy,
        LETTERS,
        ROLLOUTS,
        config,
        seed=5,
    )
    assert result.details["student_success"] == pytest.approx((4 * 0 + 4 * 0.5) / 8)


def _renamed(store, ref):
    """The same rows under other trajectory ids."""
    rows = [row | {"trajectory_id": f"older/{row['trajectory_id']}"} for row in read_dataset(store, ref).to_pylist()]
    return publish_dataset(store, ref.name, [pa.Table.from_pylist(rows, schema_of(ref.name))])


def test_policies_of_a_training_are_tried_on_train_items(store, pool, tmp_path, items, policy):
    kept = {"step-000010": policy, "step-000002": policy}
    played = partial(roll_out, store, pool, tmp_path / "work", environment=LETTERS, config=ROLLOUTS.once(1.0), seed=5)
    result = probe_policies(store, played, items, [11, 3, 7], kept, LETTERS)
    assert result.details == {"probes": [{"step": 2, "items": 3, "success": 1.0}, {"step": 10, "items": 3, "success": 1.0}]}
    rows = {row["item_id"]: row for row in read_dataset(store, items).to_pylist()}
    tried = read_dataset(store, result.extra("step-000002"), ["item_id"])["item_id"].to_pylist()
    assert [(rows[item]["split"], rows[item]["ordinal"]) for item in tried] == [("train", 11), ("train", 3), ("train", 7)]


def test_a_reply_is_as_long_as_all_rows_of_its_episode(store, pool, tmp_path, items, policy):
    played = partial(roll_out, store, pool, tmp_path / "work", environment=LETTERS, config=ROLLOUTS.once(1.0), seed=5)

    def in_two_rows(*asked):
        rows = read_dataset(store, played(*asked)).to_pylist()
        episode = {"episode": rows[0]["trajectory_id"]}
        further = rows[0] | {"trajectory_id": "further", "extra": json.dumps(episode | {"part": 1})}
        rows = [rows[0] | {"extra": json.dumps(episode)}, further, *rows[1:]]
        return publish_dataset(store, "trajectories", [pa.Table.from_pylist(rows, schema_of("trajectories"))])

    result = evaluate(store, in_two_rows, items, policy, LETTERS)
    masks = read_dataset(store, result.extra("trajectories"), ["loss_mask"])["loss_mask"].to_pylist()
    assert (result.details["items"], len(masks)) == (4, 5)
    assert result.details["reply_tokens"] == sum(map(sum, masks)) / 4


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"rounds": 2, "environment": {"train_items": 95}}, "set environment.train_items to 96 or more"),
        ({"rollouts": None, "trajectories": ["a" * 64]}, "does not sample itself"),
    ],
)
def test_probes_without_items_of_their_own_are_refused(settings, error):
    with pytest.raises(ValueError, match=error):
        NightConfig.model_validate({"train": {"probe_steps": 2}, **settings})
    NightConfig.model_validate({"train": {"probe_steps": 2}, "rounds": 2, "environment": {"train_items": 96}})
