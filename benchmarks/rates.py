"""How does the best learning rate change with the base's width? Trains random bases on a small task, at ten rates each.

    python benchmarks/rates.py --json --out benchmarks/rates.json

Claim: clawpipe/core/config/rates.py has the exponents found here. The bases are Llamas of two layers whose activations have the
same size at each width (weights of standard deviation 1 / sqrt(width)); the task is to predict a random first-order Markov chain; a
run takes as many AdamW steps as a night of the demo, under a linear schedule, and its score is the loss on other sequences of it.
The best rate is the minimum of a parabola through the lowest loss and its neighbours, over the logarithm of the rate, of means over
the seeds. Nothing is measured beyond the widest base here.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.training import Lora
from clawpipe.learn.training.model.adapter import attach_trainable, unfreeze
from clawpipe.learn.training.trainers.schedule import rate_factor

WIDTHS = (64, 128, 256, 512)
RATES = {"lora": [5e-4 * 2**step for step in range(10)], "full": [1e-4 * 2**step for step in range(10)]}
STEPS, WORDS, ROWS, TOKENS = 12, 64, 32, 16


class Curve(NamedTuple):
    """The mean loss after training, by rate, of one width."""

    width: int
    losses: dict[float, float]


def chain(seed: int) -> Tensor:
    """Return the transition probabilities of a random Markov chain: float [words, words], a few likely successors each."""
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(3 * torch.randn(WORDS, WORDS, generator=generator), -1)


def sequences(transitions: Tensor, seed: int) -> Tensor:
    """Draw int [rows, tokens] of the chain."""
    generator = torch.Generator().manual_seed(seed)
    words = [torch.randint(0, WORDS, (ROWS,), generator=generator)]
    for _ in range(TOKENS - 1):
        words.append(torch.multinomial(transitions[words[-1]], 1, generator=generator)[:, 0])
    return torch.stack(words, 1)


def base(width: int, seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    heads = width // 16
    sizes: dict[str, Any] = {
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
    }
    return LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, num_hidden_layers=2, initializer_range=width**-0.5, **sizes))


def loss_after(width: int, adapter: str, rate: float, seed: int) -> float:
    """Train a base, and return its loss on sequences that it has not seen."""
    transitions, model = chain(seed), base(width, seed)
    policy = attach_trainable(model, Lora()) if adapter == "lora" else unfreeze(model)
    trained = [weight for weight in policy.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_factor(step, "linear", 0, STEPS))
    for step in range(STEPS):
        rows = sequences(transitions, 1000 * seed + step)
        policy(input_ids=rows, labels=rows).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    with torch.no_grad():
        rows = sequences(transitions, 1000 * seed + 999)
        return float(policy(input_ids=rows, labels=rows).loss)


def curve(width: int, adapter: str, seeds: list[int]) -> Curve:
    means = {rate: float(np.mean([loss_after(width, adapter, rate, seed) for seed in seeds])) for rate in RATES[adapter]}
    return Curve(width, means)


def best_rate(losses: dict[float, float]) -> float:
    """Return the rate of the lowest loss; between the rates tried by a parabola, and at an end of them that end."""
    rates, values = list(losses), list(losses.values())
    lowest = int(np.argmin(values))
    if lowest in (0, len(rates) - 1):
        return rates[lowest]
    before, here, after = values[lowest - 1 : lowest + 2]
    shift = 0.5 * (before - after) / (before - 2 * here + after)
    return float(rates[lowest] * 2**shift)


def exponent(best: dict[int, float]) -> float:
    """Return p of rate = c * width ** -p, by least squares over the logarithms."""
    return -float(np.polyfit(np.log(list(best)), np.log(list(best.values())), 1)[0])


def measured(adapter: str, widths: list[int], seeds: list[int], until: float) -> JsonObject:
    """Return the curves and the fit; widths that do not begin before `until` are left out."""
    curves: list[Curve] = []
    for width in widths:
        if time.monotonic() < until:
            curves.append(curve(width, adapter, seeds))
            print(adapter, width, f"best {best_rate(curves[-1].losses):.2g}", file=sys.stderr, flush=True)
    best = {found.width: best_rate(found.losses) for found in curves}
    fit = round(exponent(best), 3) if len(best) > 1 else None
    losses = {str(found.width): {f"{rate:.2g}": round(loss, 4) for rate, loss in found.losses.items()} for found in curves}
    return {"best": {str(width): float(f"{rate:.3g}") for width, rate in best.items()}, "exponent": fit, "losses": losses}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--widths", type=int, nargs="+", default=list(WIDTHS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--minutes", type=float, default=15.0, help="no width begins after so many")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    until = time.monotonic() + 60 * arguments.minutes
    results = {adapter: measured(adapter, arguments.widths, arguments.seeds, until) for adapter in RATES}
    if arguments.out:
        arguments.out.write_text(json.dumps({"seeds": arguments.seeds, "steps": STEPS} | results, indent=2) + "\n")
    if arguments.json:
        print(json.dumps(results))
    else:
        for adapter, found in results.items():
            print(f"{adapter:<5} rate ~ width^-{found['exponent']}: {found['best']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
