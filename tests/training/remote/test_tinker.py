"""Train at a service that speaks Tinker's API: a fake of it, in this repository, which really trains."""

from __future__ import annotations

import shutil
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
import torch

from clawpipe.core.config.environment import EnvironmentSpec
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.datasets import write_parquet
from clawpipe.learn.training.check_request import TrainerCheckRequest
from clawpipe.learn.training.check_run import check_trainer
from clawpipe.learn.training.request import Rendering
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.model.policy.tiny import byte_tokenizer
from clawpipe.play.environments.openings import openings
from tests.training.remote.trained import away, steps_of, weights_of
from tests.training.test_preferences import GOOD as PAIR

pytest.importorskip("tinker")
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # the library leaves its first connection open
LORA = {"rank": 4, "alpha": 32}
NOT_COMPARED = {"seconds", "tokens_per_second", "tree_tokens"}


BY_NAME = {  # settings, and the loss that the service computes by its own name
    "sft": ({"method": "sft"}, "cross_entropy"),
    "ppo": ({"loss": {"dual_clip": None}}, "ppo"),
    "cispo": ({"loss": {"objective": "cispo"}, "warmup_steps": 2, "lr_scheduler_type": "cosine"}, "cispo"),
    "reinforce": ({"loss": {"objective": "reinforce", "normalise": "sequence"}}, "importance_sampling"),
    "opd": ({"method": "opd", "opd": {"form": "token"}, "loss": {"dual_clip": None}}, "ppo"),
}
BY_TWO_PASSES = {
    "dual_clip": {"loss": {"dual_clip": 3.0}},
    "gspo": {"loss": {"level": "sequence", "kl_coef": 0.1}, "adam_beta2": 0.95, "weight_decay": 0.1, "max_grad_norm": 0.01},
    "combine": {"method": "combine", "opd": {"form": "token"}, "combine": {"w_rl": 0.5, "w_opd": 2.0}},
    "kto": {"method": "kto"},
    "dpo": {"method": "dpo"},
}


def pairs_of(directory):
    """Files of eight pairs in four groups, and of their sides' log-probs under the reference."""
    generator = np.random.default_rng(1)
    pairs, scores = [], []
    for number in range(8):
        sides = {side: [*range(6), *generator.integers(0, 9, 4).tolist()] for side in ("chosen", "rejected")}
        pair = PAIR | {"pair_id": f"p{number}", "group_id": f"g{number % 4}", "prompt_tokens": 6, "temperature": 1.0}
        for side, ids in sides.items():
            pair |= {f"{side}_token_ids": ids, f"{side}_loss_mask": [False] * 6 + [True] * 4}
            scores.append({"row_id": f"p{number}/{side}", "reference": generator.normal(-5.7, 0.2, 4)})
        pairs.append(pair)
    for name, rows in (("preference_pairs", pairs), ("token_scores", scores)):
        write_parquet(pa.Table.from_pylist(rows, schema_of(name)), directory / f"pairs-{name}.parquet")
        yield (str(directory / f"pairs-{name}.parquet"),)


def text_pairs_in(directory):
    """A file of eight pairs of text in four groups."""
    rows = []
    for number in range(8):
        said = {
            "prompt": ("user", f"How many of {number}?"),
            "chosen": ("assistant", str(number)),
            "rejected": ("assistant", "None at all."),
        }
        pair = PAIR | {"pair_id": f"p{number}", "group_id": f"g{number % 4}", "tokens": "none", "temperature": 0.0}
        pair |= {part: [Message(role, text).as_dict()] for part, (role, text) in said.items()}
        rows.append(pair | {f"{side}_{stream}": [] for side in ("chosen", "rejected") for stream in ("token_ids", "loss_mask")})
    write_parquet(pa.Table.from_pylist(rows, schema_of("preference_pairs")), directory / "text.parquet")
    return (str(directory / "text.parquet"),)


def require_equal(local, there):
    """Check that a training there took the steps of one here."""
    ours, theirs = steps_of(local), steps_of(there)
    assert len(ours) == len(theirs) > 2
    for our, their in zip(ours, theirs, strict=True):
        assert their.keys() == our.keys() - {"entropy"}
        undecided = {"accuracy"} if abs(our.get("margin", 1.0)) < 1e-5 else set()  # a policy that is its reference: signs of noise
        for metric in their.keys() - NOT_COMPARED - undecided:
            assert their[metric] == pytest.approx(our[metric], rel=1e-3, abs=1e-5), metric
    expected, found = weights_of(local), weights_of(there)
    assert expected.keys() == found.keys()
    assert max(float(tensor.abs().max()) for name, tensor in expected.items() if "lora_B" in name) > 1e-3
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", BY_NAME)
def test_losses_that_the_service_has_are_those_of_this_machine(job, here, fake, name):
    train, loss = BY_NAME[name]
    local, there = here(job("local", train, there=False)), away(job("there", train))
    require_equal(local, there)
    assert fake.losses == Counter({(loss, False): len(steps_of(there))})


@pytest.mark.parametrize("name", BY_TWO_PASSES)
def test_other_losses_are_computed_here_from_its_log_probs(job, here, fake, tmp_path, name):
    train = BY_TWO_PASSES[name]
    files = dict(zip(("samples", "token_scores"), pairs_of(tmp_path), strict=True)) if name == "dpo" else {}
    local, there = (run(job(run.__name__, train, **where, **files)) for run, where in ((here, {"there": False}), (away, {})))
    require_equal(local, there)
    steps = len(steps_of(there))
    assert fake.losses["cross_entropy", False] == steps
    assert fake.losses["cross_entropy", True] == steps + (name == "kto")  # the mismatched rows, under the policy at the start


def test_pairs_of_text_are_trained_there_too(job, here, fake, tmp_path):
    byte_tokenizer().save_pretrained(tmp_path / "base")
    rendering = Rendering(opening=openings(EnvironmentSpec())[0], tool_call_format="pythonic")
    facts = {"samples": text_pairs_in(tmp_path), "token_scores": (), "rendering": rendering}
    local, there = (
        run(job(run.__name__, {"method": "dpo"}, **where, **facts)) for run, where in ((here, {"there": False}), (away, {}))
    )
    require_equal(local, there)
    assert fake.losses["cross_entropy", True] == len(steps_of(there)) + 1  # the reference, once


def test_the_model_check_compares_the_services_log_probs(job, fake, tmp_path, tiny_llama):
    byte_tokenizer().save_pretrained(tmp_path / "base")
    policy = PolicySpec(base=str(tmp_path / "base"), adapter=None, dtype="float32", tool_call_format="pythonic", policy_version="")
    request = TrainerCheckRequest(policy=policy, train=job("checked").config)
    found = check_trainer(request)
    assert (found.part, found.largest < 1e-4) == ("trainer", True)
    other = tiny_llama(rope_theta=10.0)
    torch.nn.init.normal_(other.lm_head.weight)
    other.save_pretrained(tmp_path / "other")
    fake.bases["tiny"] = str(tmp_path / "other")
    assert not check_trainer(request).within(request.bound)
    assert fake.steps == 0


def test_a_training_there_reads_no_weights_here(job, fake, tmp_path):
    straight = away(job("straight", {"method": "sft"}))
    request = job("blind", {"method": "sft"})
    away_from_here = tmp_path / "base-there"
    (tmp_path / "base").rename(away_from_here)
    fake.bases["tiny"] = str(away_from_here)
    (tmp_path / "base").mkdir()
    shutil.copy(away_from_here / "config.json", tmp_path / "base")
    assert weights_of(away(request)).keys() == weights_of(straight).keys()
