"""Recorded log-probs of which no ratio can be taken: set aside by methods that take ratios, and by no others."""

from collections import Counter

import numpy as np
import pytest

RATIO = ("grpo", "ppo")


def talk(tables, index, *turns, between=0.0, **fields):
    """A trajectory whose turns have the given log-probs, with a token of the environment between them."""
    ids, mask, logprobs, spans = [1, 2], [False, False], [0.0, 0.0], []
    for values in turns:
        if spans:
            ids, mask, logprobs = [*ids, 9], [*mask, False], [*logprobs, between]
        start = len(ids)
        ids, mask, logprobs = [*ids, *[20 + index] * len(values)], [*mask, *[True] * len(values)], [*logprobs, *values]
        spans.append({"start": start, "end": len(ids), "kind": "main", "finish_reason": "stop"})
    streams = {"token_ids": ids, "loss_mask": mask, "logprobs": logprobs, "turns": spans, "prompt_tokens": 2}
    tables.rollout("a", index, float(index % 2), **streams | fields)


def reasons(tables, method="ppo"):
    return tables.curate(method, imitate="any").filtered if method == "sft" else tables.curate(method).filtered


def test_log_probs_of_another_distribution_give_no_ratio(tables):
    """Raw ones at 0.8 were stored as tempered: an unchanged policy had ratios from 0.11 to 2.20."""
    others = [
        ({"logprobs_kind": "raw"}, "log-probs not at the sampling temperature"),
        ({"logprobs_kind": "unknown"}, "log-probs of unknown kind"),
        ({"logprobs_kind": None, "source": "imported"}, "log-probs of unknown kind"),
        ({"logprobs_kind": "none", "temperature": 1.0}, "no log-probs of what was drawn from"),
        ({"logprobs_kind": "raw", "temperature": 1.0}, None),
        ({"logprobs_kind": "unknown", "temperature": 1.0}, None),
        ({"logprobs_kind": None, "source": "imported", "temperature": 1.0}, None),
        ({"logprobs_kind": None}, None),
        ({"logprobs_kind": "tempered", "source": "imported"}, None),
    ]
    for index, (fields, _) in enumerate(others):
        talk(tables, index, [-0.5, -0.25], **fields)
    result = tables.curate("ppo")
    assert result.filtered == Counter(reason for _, reason in others if reason)
    assert tables.kept(result) == [f"a-{index}" for index, (_, reason) in enumerate(others) if not reason]


DULL = [-0.5, -1.0, -0.1, -2.0]


@pytest.mark.parametrize("method", RATIO)
def test_log_probs_padded_with_zeros_are_filtered(tables, method):
    """They trained in silence, with a mean ratio of 0.004."""
    padded = [
        [[0.0] * 8],  # nothing was measured
        [[*DULL, *[0.0] * 8]],  # fewer log-probs than tokens
        [DULL, [0.0] * 12],  # a turn without any
        [[*DULL, *[0.0] * 9], DULL],
        [[-0.0] * 30],
    ]
    for index, turns in enumerate([[DULL], [DULL], *padded]):
        talk(tables, index, *turns)
    result = tables.curate(method)
    assert result.filtered == {"log-probs padded with zeros": len(padded)}
    assert tables.kept(result) == ["a-0", "a-1"]


def test_tokens_of_which_a_policy_is_certain_are_no_padding(tables):
    certain = [
        [0.0] * 7,  # a short answer of which the policy is certain
        [*DULL, *[0.0] * 7],  # the end of a call
        [0.0, -0.5, 0.0, 0.0, -1e-7, *[0.0] * 23],  # as SmolLM2-135M copies JSON at temperature 0.3
        [*[0.0, -0.3] * 20, *[0.0] * 12],
        [-1e-7] * 30,
    ]
    for index, turn in enumerate([DULL, *certain[:3]]):
        talk(tables, index, turn)
    talk(tables, 4, [0.0, -0.3] * 20, [0.0] * 12)
    talk(tables, 5, certain[4])
    assert reasons(tables) == {}


def test_a_sharp_distribution_is_never_taken_for_padding(tables):
    """Log-probs as float32 rounds them, of logits so far apart that a third of them is exactly 0."""
    generator = np.random.default_rng(0)
    for index in range(64):
        logits = generator.normal(0, 60, (40, 50)).astype(np.float32)
        best = logits.max(axis=1)
        logprobs = -np.log(np.exp(logits - best[:, None]).sum(axis=1, dtype=np.float32))
        talk(tables, index, logprobs.tolist())
    share = np.mean([value == 0 for row in tables.trajectories for value in row["logprobs"][2:]])
    assert 0.2 < share < 0.7
    assert reasons(tables) == {}


def test_imitation_needs_no_log_probs(tables):
    talk(tables, 1, [0.0] * 30, logprobs_kind="none")
    assert reasons(tables, "sft") == {}
    assert len(tables.rows(tables.curate("sft"))) == 1
