"""top_p, against the distribution that transformers' own warper leaves."""

import pytest
import torch
from transformers import TopPLogitsWarper

from clawpipe.model.engines.base import Sampling
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.base import resolve_base

PROMPT = [5, 9, 33, 80, 41, 7]
DRAWS = 600


@pytest.fixture(scope="module")
def engine():
    return EmbeddedEngine(resolve_base("random").path, None, device="cpu")


def first_tokens(engine, top_p, temperature=0.3):
    sampling = Sampling(temperature, 1, (0,), top_p)
    turns = engine.begin([PROMPT] * DRAWS).sample(dict(enumerate(range(DRAWS))), sampling)
    return turns.values()


@pytest.mark.parametrize("top_p", [0.05, 0.5])
def test_only_the_nucleus_is_drawn_from_and_in_proportion(engine, top_p):
    scores = torch.tensor([[engine.score([*PROMPT, token], len(PROMPT))[0] for token in range(259)]])
    expected = TopPLogitsWarper(top_p)(None, scores / 0.3).softmax(-1)[0]
    drawn = torch.bincount(torch.tensor([turn.ids[0] for turn in first_tokens(engine, top_p)]), minlength=259) / DRAWS
    assert drawn[expected == 0].sum() == 0
    assert (expected > 0).sum() < 259
    assert ((drawn - expected).abs() < 5 * (expected * (1 - expected) / DRAWS).sqrt() + 1e-9).all()  # five standard errors


def test_recorded_logprobs_stay_those_of_the_whole_vocabulary(engine):
    for turn in list(first_tokens(engine, 0.5))[:20]:
        assert turn.logprobs == pytest.approx(engine.score(PROMPT + turn.ids, len(PROMPT), 0.3), abs=1e-4)


def test_a_stream_reports_the_models_own_distribution(engine):
    sampling = Sampling(0.5, 6, (0,), 0.7)
    whole = engine.begin([PROMPT]).sample({0: 4}, sampling)[0]
    streamed = list(engine.begin([PROMPT]).stream(0, 4, sampling, top=2))
    assert [token for token, _ in streamed] == whole.ids
    assert [likelihood.logprob for _, likelihood in streamed] == pytest.approx(
        engine.score(PROMPT + whole.ids, len(PROMPT)), abs=1e-4
    )
    assert all(len(likelihood.top) == 2 and likelihood.top[0][1] >= likelihood.top[1][1] for _, likelihood in streamed)
