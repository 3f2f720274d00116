"""`clawpipe explain`: what a name is here."""

import json

import pytest

from clawpipe.cli.explain import explain
from clawpipe.cli.main import _outcome
from clawpipe.core.config.names.table import names


def test_every_name_is_explained(capsys):
    for name in sorted({known.name for known in names()}):
        explain(name.split(), json_output=True)
        told = json.loads(capsys.readouterr().out)
        assert told["meanings"]
        assert all(known["targets"] or known["note"] for known in told["meanings"])


@pytest.mark.parametrize("words", ["--eps-clip", "monoclaw batch run --input a.jsonl --save-tool-calls true", "X-Session-Id"])
def test_a_name_may_begin_with_dashes_or_be_a_whole_command(words, capsys):
    for separator in ([], ["--"]):
        assert _outcome(["explain", "--json", *separator, *words.split()]) == 0
        assert json.loads(capsys.readouterr().out)["meanings"]


def test_words_for_people(capsys):
    assert _outcome(["explain", "opd_weight"]) == 0
    assert capsys.readouterr().out == (
        "OpenClaw-RL, opd_weight:\n  train.combine.w_opd: weight of the teacher's part\n  the weight of the teacher in combine\n"
    )


def test_a_setting_of_ones_own_is_explained(capsys):
    assert _outcome(["explain", "train.loss.clip_low"]) == 0
    assert "1 - clip_low (default: 0.2)" in capsys.readouterr().out


def test_a_name_that_nobody_has_is_refused_with_the_nearest(capsys):
    assert _outcome(["explain", "ppo_clip_ratoi"]) == 2
    assert "did you mean ppo_clip_ratio" in capsys.readouterr().err
