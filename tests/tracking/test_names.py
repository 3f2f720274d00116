"""Names of metrics in trackers and in the documentation."""

from __future__ import annotations

import math
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.services.stack import project_directory
from clawpipe.learn.training.metrics import METRICS
from clawpipe.record.tracking.names import PREDECESSORS, names, tables, tracked

DOCS = project_directory() / "docs" / "tracking.md"


def test_the_tables_in_the_docs_are_the_ones_that_apply():
    text = DOCS.read_text()
    for table in tables().split("\n\n"):
        assert table.strip() in text, "print them with: python -m clawpipe.record.tracking.names"


@pytest.mark.parametrize("name", PREDECESSORS)
def test_what_users_of_other_systems_look_for_is_there(name: str):
    here = re.split(" of a night", PREDECESSORS[name])[0]
    assert here in names() or here.startswith("heldout/")


@given(st.dictionaries(st.sampled_from([*METRICS, "no_metric"]), st.floats(allow_nan=False, allow_infinity=False, width=32)))
def test_every_metric_of_training_is_passed_on_and_nothing_else(facts: dict[str, float]):
    metrics = tracked(facts)
    assert set(metrics) <= set(names())
    own = {name for name in facts if name in METRICS and name not in {"step", "of", "epoch"}}
    assert len(set(metrics) - {"logprobs/diff"}) == len(own)
    assert sorted(value for name, value in metrics.items() if name != "logprobs/diff") == sorted(facts[name] for name in own)


def test_the_difference_of_log_probs_is_that_of_the_two():
    metrics = tracked({"lp": -1.5, "behav_lp": -1.25})
    assert math.isclose(metrics["logprobs/diff"], 0.25)  # recorded less trained, as tinker-atropos has it
    assert "logprobs/diff" not in tracked({"lp": -1.5})


def test_metrics_of_earlier_systems_keep_their_names():
    metrics = tracked({"loss": 1.0, "policy_loss": 0.5, "adv_std": 2.0})
    assert metrics == {"loss/total": 1.0, "loss/binary": 0.5, "advantages/std": 2.0}


def test_names_need_no_heavy_library():
    code = "import sys, clawpipe.record.tracking.names; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"mlflow", "torch", "transformers", "prefect", "wandb", "pyarrow"}.isdisjoint(loaded)
