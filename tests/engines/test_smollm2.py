"""The embedded default, for real: what the engine records is what the model says."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.environments.shop import ShopEnvironment
from clawpipe.play.workers.episodes import EpisodeLimits, run_episodes

TEMPERATURE = 0.8


@pytest.mark.model
@pytest.mark.slow
def test_recorded_logprobs_are_the_models_own_over_two_turns():
    """Every sampled token of four shop episodes against one plain forward pass a row of transformers."""
    base = resolve_base("smollm2-135m-instruct").path
    environment = ShopEnvironment()
    renderer = Renderer(load_tokenizer(base), "pythonic", environment.tools())
    items = environment.items("train", 2, seed=0)
    limits = EpisodeLimits(TEMPERATURE, max_new_tokens=24, max_turns=2, max_tokens=2048)
    rollouts = run_episodes(EmbeddedEngine(base, None, device="cpu"), renderer, environment, items, 2, limits, seed=0)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    for rollout in rollouts:
        with torch.no_grad():
            logprobs = (model(torch.tensor([rollout.token_ids])).logits[0] / TEMPERATURE).log_softmax(-1)
        sampled = [place for place, mine in enumerate(rollout.mask) if mine]
        expected = [logprobs[place - 1, rollout.token_ids[place]].item() for place in sampled]
        assert [rollout.logprobs[place] for place in sampled] == pytest.approx(expected, abs=1e-3)
    assert any(len(rollout.turns) == 2 for rollout in rollouts)
