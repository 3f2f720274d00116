"""What a round asks for beside its rollouts: drawn items, demonstrations, rollouts of earlier nights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.refs import DatasetRef
from clawpipe.errors import ConfigError
from clawpipe.learn.evaluation.heldout.draw import publish_items, require_slices
from clawpipe.play.environments.discovery import load_environment
from flows.judged import judge
from flows.learning import choose_training_data
from flows.night import Past
from flows.round import Round, generate_rollouts
from tests.flows.test_round import ITEMS, Answering, asking, round_of

OWN = DatasetRef(name="trajectories", digest="own", rows=4)


def past(night: str, mark: str, trained: str | None = None) -> Past:
    return Past(*(DatasetRef(name=name, digest=f"{name} {mark}", rows=1) for name in ("trajectories", "scores")), trained, night)


def asked(method: str = "grpo", *earlier: Past, **settings: Any) -> Round:
    """A round of a night with these settings and these earlier rounds."""
    this = round_of(method=method)
    config = NightConfig.model_validate({"train": {"method": method}} | settings)
    return replace(this, night=replace(this.night, config=config, past=list(earlier)), tried=list(earlier))


SHOWN = {"curation": {"demonstrations": {"share": 0.3}}}


@pytest.mark.parametrize("method", ["sft", "grpo", "ppo", "dpo", "kto", "opd", "combine"])
def test_demonstrations_are_rendered_verified_and_curated(method: str) -> None:
    do, this = Answering(), asked(method, **SHOWN)
    judged = asking(do, judge, this, [OWN])
    assert do.names[-3:] == ["demonstrate", "render_demonstrations", "score_demonstrations"]
    assert do.inputs("demonstrate")["items"] == ITEMS
    asking(do, choose_training_data, this, judged)
    curated = do.inputs("curate")
    assert [ref.digest for ref in curated["trajectories"]] == ["validate", "render"]
    assert len(curated["scores"]) == 2


def test_without_the_settings_a_round_is_as_before() -> None:
    do, this = Answering(), asked("grpo", past("n1", "a"))
    judged = asking(do, judge, this, [OWN])
    assert (do.names, judged.demonstrations, judged.replayed) == (["validate", "score"], None, None)


REPLAY = {"curation": {"sampling": {"replay": 0.2, "replay_nights": 1}}}


def test_the_newest_nights_are_replayed_with_their_scores() -> None:
    do = Answering()
    items = DatasetRef(name="task_items", digest="items of n2", rows=1)
    newest = [past("n2", name, policy)._replace(items=items) for name, policy in (("c", "p3"), ("b", "p2"))]
    this = asked("grpo", *newest, past("n1", "a", "p1"), **REPLAY)
    judged = asking(do, judge, this, [OWN])
    assert [arguments["trajectories"].digest for name, arguments in do.calls if name == "fit_replayed"] == [
        "trajectories c",
        "trajectories b",
    ]
    assert do.names.count("recompute_logprobs") == 2
    asking(do, choose_training_data, this, judged)
    curated = do.inputs("curate")
    assert (len(curated["replayed"]), curated["replayed_items"]) == (2, [items])
    assert [ref.digest for ref in curated["scores"]] == ["score", "scores c", "scores b"]
    assert curated["versions"] == ["start", "p3", "p2", this.night.base.policy_version]
    digests = {ref.digest for ref in this.night.external_artifacts}
    assert {"trajectories b", "scores b", "trajectories c"} <= digests


def test_what_the_base_sampled_here_is_replayed_as_it_is() -> None:
    do = Answering()
    base = asked("grpo").night.base.base
    own, other = past("n2", "b", "p2")._replace(sampled=base), past("n1", "a", "p1")._replace(sampled="another base")
    judged = asking(do, judge, asked("grpo", own, other, curation={"sampling": {"replay": 0.2, "replay_nights": 2}}), [OWN])
    assert [arguments["trajectories"].digest for name, arguments in do.calls if name == "fit_replayed"] == ["trajectories a"]
    assert do.names.count("recompute_logprobs") == 1
    assert judged.replayed
    assert [ref.digest for ref in judged.replayed.trajectories] == ["trajectories b", "recompute_logprobs"]


def test_methods_without_ratios_replay_without_log_probs() -> None:
    do = Answering()
    asking(do, judge, asked("sft", past("n1", "a"), **REPLAY), [OWN])
    assert "recompute_logprobs" not in do.names


def test_opd_has_nothing_to_replay() -> None:
    with pytest.raises(ValueError, match="hints to tonight's items alone"):
        NightConfig.model_validate({"train": {"method": "opd"}} | REPLAY)


def test_items_are_drawn_by_the_newest_rounds_first() -> None:
    do = Answering()
    this = asked("grpo", past("n1", "a"), rollouts={"difficulty": {"unseen": 0.25}, "items": 4})
    asking(do, judge, this, [OWN])  # as an earlier round of tonight
    asking(do, generate_rollouts, this)
    drawn = do.inputs("draw_items")
    assert [ref.digest for ref in drawn["tried"]] == ["validate", "trajectories a"]
    assert [ref.digest for ref in drawn["scores"]] == ["score", "scores a"]
    assert (drawn["count"], drawn["config"].unseen) == (4, 0.25)
    chunks = [arguments for name, arguments in do.calls if name == "generate_rollouts" and "chunk" in arguments]
    assert sorted(ordinal for one in chunks for ordinal in one["chunk"].ordinals) == [0, 1, 2, 3]
    assert {one["items"].digest for one in chunks} == {"draw_items"}


def test_a_slice_that_no_item_has_is_refused(tmp_path: Any) -> None:
    store = Store(tmp_path / "store")
    items = publish_items(store, load_environment("shop", {}).items("train", 8, 0))
    assert require_slices(store, items, ["calc"]).rows_out == 8
    with pytest.raises(ConfigError, match="no task item is of slice weathr"):
        require_slices(store, items, ["calc", "weathr"])
