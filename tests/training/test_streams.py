"""The streams that a method makes of recorded rows: the four cases of hint and score, and incomplete rows."""

import numpy as np
import pyarrow as pa
import pytest

from clawpipe.core.config.training import Combine, Loss, Opd, Train
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.datasets import write_parquet
from clawpipe.errors import ConfigError
from clawpipe.learn.training.data.samples import load_samples
from clawpipe.learn.training.methods import needs, require_token_scores, weights_of

BEHAVIOUR, TEACHER = [-1.0, -2.0], [-0.5, -9.0]
ROW = {
    "trajectory_id": "t",
    "group_id": "g",
    "token_ids": [5, 6, 7, 8],
    "loss_mask": [False, True, False, True],
    "logprobs": [0.0, BEHAVIOUR[0], 0.0, BEHAVIOUR[1]],
    "advantages": [0.0, 0.5, 0.0, -0.5],
    "rewards": [0.0, 0.0, 0.0, 1.0],
    "temperature": 0.8,
    "weight": 1.0,
}
HINTED = {
    "row_id": "t",
    "reference": [-1.5, -2.5],
    "proximal": [-1.1, -2.1],
    "teacher": TEACHER,
    "top_k": 2,
    "top_tokens": [1, 2, 3, 4],
    "top_teacher": [-0.7, -0.8, -0.9, -1.0],
    "hint": 0,
}
UNHINTED = HINTED | dict.fromkeys(("teacher", "top_k", "top_tokens", "top_teacher", "hint"))
TOKEN = Opd(form="token", clip=1.0)


@pytest.fixture
def load(tmp_path):
    """load(train, row, scores): the only sample's streams as lists, or why it was filtered."""

    def run(train, row=ROW, scores=HINTED):
        write_parquet(pa.Table.from_pylist([row, ROW | {"trajectory_id": "filler"}]), tmp_path / "samples.parquet")
        held = ([scores] if scores else []) + [HINTED | {"row_id": "filler"}]
        write_parquet(pa.Table.from_pylist(held, schema_of("token_scores")), tmp_path / "scores.parquet")
        samples, filtered = load_samples([str(tmp_path / "samples.parquet")], train, 1.0, [str(tmp_path / "scores.parquet")])
        return filtered or {name: stream.tolist() for name, stream in samples[0].streams.items()}

    return run


def combined(form, w_rl=2.0, w_opd=0.5):
    return Train(method="combine", combine=Combine(w_rl=w_rl, w_opd=w_opd), opd=Opd(form=form, clip=1.0, top_k=2))


@pytest.mark.parametrize("scored", [True, False])
@pytest.mark.parametrize("hinted", [True, False])
def test_the_four_cases_of_the_token_form(load, scored, hinted):
    """The teacher's gain is +0.5 on the first token and -7 on the second, which is clipped to -1."""
    row = ROW if scored else ROW | {"advantages": [0.0] * 4}
    streams = load(combined("token"), row, HINTED if hinted else UNHINTED)
    reward, opinion = ([0.5, -0.5] if scored else [0, 0]), ([0.5, -1.0] if hinted else [0, 0])
    assert streams["advantages"] == [2.0 * a + 0.5 * o for a, o in zip(reward, opinion, strict=True)]
    assert streams["distil"] == [float(hinted)] * 2
    assert "top_tokens" not in streams


@pytest.mark.parametrize("form", ["token", "topk"])
def test_tokens_of_turns_without_a_hint_have_no_teacher(load, form):
    streams = load(combined(form), ROW, HINTED | {"taught": [False, True]})
    assert streams["distil"] == [0.0, 1.0]
    assert streams["advantages"] == ([2.0 * 0.5, 2.0 * -0.5 + 0.5 * -1.0] if form == "token" else [1.0, -1.0])
    assert load(combined(form), ROW, HINTED | {"taught": [True]}) == {"token_scores_missing": 1}


@pytest.mark.parametrize("scored", [True, False])
@pytest.mark.parametrize("hinted", [True, False])
def test_the_four_cases_of_the_topk_form(load, scored, hinted):
    row = ROW if scored else ROW | {"advantages": [0.0] * 4}
    streams = load(combined("topk"), row, HINTED if hinted else UNHINTED)
    assert streams["advantages"] == ([1.0, -1.0] if scored else [0, 0])
    assert streams["distil"] == [float(hinted)] * 2
    assert np.shape(streams["top_tokens"]) == np.shape(streams["top_teacher"]) == (2, 2)
    if hinted:
        assert streams["top_tokens"] == [[1, 2], [3, 4]]
        np.testing.assert_allclose(streams["top_teacher"], [[-0.7, -0.8], [-0.9, -1.0]], rtol=1e-6)


@pytest.mark.parametrize("form", ["token", "topk"])
def test_combine_without_a_term_has_the_other_methods_streams(load, form):
    opd = Train(method="opd", opd=Opd(form=form, clip=1.0, top_k=2))
    assert load(combined(form, 0.0, 1.0)) == load(opd)
    assert load(combined(form, 1.0, 0.0)) == load(Train(method="grpo"))
    assert needs(combined(form, 1.0, 0.0)) == needs(Train())


@pytest.mark.parametrize("form", ["token", "topk"])
def test_opd_alone_has_nothing_to_say_without_a_hint(load, form):
    assert load(Train(method="opd", opd=Opd(form=form, top_k=2)), scores=UNHINTED) == {"no_hint": 1}


def test_each_policy_that_is_asked_for_becomes_a_stream(load):
    streams = load(Train(loss=Loss(kl_coef=0.1, tis_cap=2.0)))
    np.testing.assert_allclose(streams["reference"], HINTED["reference"], rtol=1e-6)
    np.testing.assert_allclose(streams["proximal"], HINTED["proximal"], rtol=1e-6)
    assert set(load(Train())) == {"behaviour", "advantages"}


def test_sft_takes_the_scores_of_the_tokens_it_trains(load):
    streams = load(Train(method="sft", loss=Loss(kl_coef=0.1)))
    assert (streams["advantages"], streams["reference"]) == ([0.5], [-1.5])


@pytest.mark.parametrize(
    "scores",
    [
        None,
        HINTED | {"reference": [-1.5]},
        HINTED | {"reference": None},
        HINTED | {"teacher": None},
        HINTED | {"teacher": [-1.0, -1.0, -1.0]},
    ],
)
def test_a_row_with_missing_or_wrong_scores_is_filtered(load, scores):
    train = combined("token").model_copy(update={"loss": Loss(kl_coef=0.1)})
    assert load(train, scores=scores) == {"token_scores_missing": 1}


@pytest.mark.parametrize("scores", [{"top_k": 3}, {"top_tokens": [1, 2]}, {"top_teacher": None}])
def test_compared_tokens_must_be_as_many_as_the_settings_say(load, scores):
    assert load(combined("topk"), scores=HINTED | scores) == {"token_scores_missing": 1}


def test_scores_that_are_not_finite_set_a_row_aside(load):
    assert load(combined("token"), scores=HINTED | {"teacher": [float("nan"), -1.0]}) == {"not_finite": 1}


def test_ppo_reads_the_rewards(load):
    assert load(Train(method="ppo"))["rewards"] == [0.0, 1.0]
    assert load(Train(method="ppo"), ROW | {"rewards": None}) == {"rewards_missing": 1}


def test_what_a_method_needs():
    assert needs(Train(method="dpo")) == {"reference"}
    assert needs(Train(method="opd")) == needs(Train(method="combine")) == {"teacher"}
    assert needs(Train(loss=Loss(icepop=(0.5, 2.0)))) == {"proximal"}
    assert needs(Train(method="ppo")) == needs(Train(method="sft")) == needs(Train()) == frozenset()


def test_what_a_method_needs_and_nobody_gave_is_an_error():
    for train, field in ((Train(method="opd"), "train.method"), (Train(loss=Loss(icepop=(0.5, 2))), "train.loss.tis_cap")):
        with pytest.raises(ConfigError, match=field):
            require_token_scores(train, there=False)
        require_token_scores(train, there=True)


def test_weights():
    assert [weights_of(Train(method=name)) for name in ("sft", "grpo", "ppo", "opd")] == [(1, 0), (1, 0), (1, 0), (0, 1)]
