"""One round of GRPO with the library alone: no night, no Prefect, no store. Run it: `python examples/rl_loop.py`.

The built-in `random` model, two layers over bytes, is asked for lowercase letters: roll out groups, compare each rollout with its
group, train an adapter on the recorded tokens, and roll out again.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch

from clawpipe.core.config.training import Lora, Loss
from clawpipe.learn.training.data.packing import build_pack, plan_packs
from clawpipe.learn.training.data.samples import Sample
from clawpipe.learn.training.losses.policy import policy_loss
from clawpipe.learn.training.model.adapter import attach_trainable, save_adapter
from clawpipe.learn.training.model.scoring_head import install_scoring_head, score_pack
from clawpipe.learn.training.model.tree_attention import use_packs
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.load import load_base
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.environments.letters import LettersEnvironment
from clawpipe.play.workers.episodes import EpisodeLimits, Rollout, run_episodes

ITEMS, GROUP, STEPS, CPU = 16, 8, 8, torch.device("cpu")
ENVIRONMENT, BASE = LettersEnvironment(), resolve_base("random")
LIMITS = EpisodeLimits(temperature=1.0, max_new_tokens=2, max_turns=2, max_tokens=512)


def roll_out(adapter: Path | None, seed: int) -> tuple[list[Rollout], np.ndarray]:
    """Return GROUP rollouts of each item, and their rewards [ITEMS, GROUP]."""
    engine = EmbeddedEngine(BASE.path, adapter, device="cpu")
    renderer = Renderer(load_tokenizer(BASE.path), "pythonic", ENVIRONMENT.tools())
    rollouts = run_episodes(engine, renderer, ENVIRONMENT, ENVIRONMENT.items("train", ITEMS, 0), GROUP, LIMITS, seed)
    rewards = [ENVIRONMENT.verify(rollout.item, rollout.messages).value for rollout in rollouts]
    return rollouts, np.reshape(rewards, (ITEMS, GROUP))


def to_sample(rollout: Rollout, advantage: float) -> Sample:
    """Return the tokens that the policy sampled, with their recorded log-probs; what the environment said is context."""
    trained = np.flatnonzero(rollout.mask)
    streams = {
        "behaviour": np.asarray(rollout.logprobs, np.float32)[trained],
        "advantages": np.full(len(trained), advantage, np.float32),
    }
    return Sample(rollout.item.item_id, np.asarray(rollout.token_ids), trained, LIMITS.temperature, 1.0, streams)


def train(samples: list[Sample], directory: Path) -> list[dict[str, float]]:
    """Take STEPS steps of AdamW on the clipped loss, save the adapter, and return the metrics of each step."""
    base = load_base(BASE.path, "float32", CPU)
    use_packs(base, CPU)  # rows that begin alike share tokens
    model = attach_trainable(base, Lora(rank=4, alpha=8))
    install_scoring_head(model)
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=2e-3, weight_decay=0.0)
    steps = []
    for packs in plan_packs(samples, pack_tokens=1 << 20, steps=STEPS, seed=0):
        batch = build_pack([samples[row] for pack in packs for row in pack])
        logprobs = score_pack(model, batch).logprobs[batch["score"]]
        loss, metrics = policy_loss(logprobs, batch["behaviour"], batch["advantages"], batch["rows"], Loss(clip_high=1.0))
        loss.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        steps.append({"loss": loss.mean().item(), "ratio": metrics["ratio_mean"].item(), "clipped": metrics["clip_frac"].item()})
    save_adapter(model, directory, BASE.digest)
    return steps


if __name__ == "__main__":
    torch.manual_seed(0)
    rollouts, rewards = roll_out(adapter=None, seed=0)
    spread = rewards.std(axis=1, keepdims=True)
    advantages = (rewards - rewards.mean(axis=1, keepdims=True)) / (spread + 1e-4)
    with tempfile.TemporaryDirectory() as directory:
        for number, step in enumerate(train([*map(to_sample, rollouts, advantages.flat)], Path(directory)), 1):
            print(f"step {number}  " + "  ".join(f"{name} {value:.4f}" for name, value in step.items()))
        print(f"reward before {rewards.mean():.3f}, after {roll_out(Path(directory), seed=1)[1].mean():.3f}")
