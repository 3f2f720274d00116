"""Every metric that a run reports has a name with a meaning."""

import json

import pytest

from clawpipe.core.config.training import Loss, Opd
from clawpipe.learn.training.metrics import METRICS

KINDS = {
    "grpo": {"loss": Loss(kl_coef=0.1, icepop=(0.5, 2.0), opsm_delta=0.0), "validation": 0.25},
    "tis": {"loss": Loss(tis_cap=2.0)},
    "sft": {"method": "sft"},
    "ppo": {"method": "ppo"},
    "combine": {"method": "combine", "opd": Opd(top_k=4)},
}
EXPECTED = {
    "grpo": {"kl", "icepop_frac", "opsm_drop", "validation_loss", "ratio_mean", "clip_frac", "approx_kl", "adv_std", "policy_loss"},
    "tis": {"tis_frac"},
    "sft": {"lp", "entropy"},
    "ppo": {"value_loss", "explained_variance", "return_mean"},
    "combine": {"distil_kl", "hinted"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_run_reports_is_listed(request_for, here, kind):
    heard = []
    outcome = here(request_for(kind, train=KINDS[kind] | {"optimizer_steps": 2, "epochs": 1}), heard.append)
    stored = [json.loads(line) for line in (outcome / "metrics.jsonl").read_text().splitlines()]
    names = {name for step in [*heard, *stored] for name in step}
    assert names <= METRICS.keys()
    assert names >= EXPECTED[kind] | {
        "step",
        "of",
        "loss",
        "grad_norm",
        "learning_rate",
        "trained_tokens",
        "tree_tokens",
        "seconds",
    }


def test_meanings_are_one_line_each():
    assert all(meaning and "\n" not in meaning for meaning in METRICS.values())
