"""How fast does the embedded engine sample, and what do slow tools cost? Prints ratios and the seconds they are made of.

    python benchmarks/rollouts.py --json > benchmarks/rollouts.json

Three questions, each on the demo's environment and model:

1. tokens per second with log-probs, against `transformers.generate` at its best batch of 8, 16, 32 or 64: equal prompts (8 rollouts
   of 8 items), the same number of tokens per row, interleaved; before that, both sides' log-probs must be those of a forward pass.
2. a step of 64 rows against the time of its linear layers alone, one after the other, on as many rows.
3. share of the time in which the engine generates, where each answer of the environment takes `--tool` seconds: 1, 2 and 4 waves.

Machines are shared and seconds say little; ratios are of runs that took turns. Each finished run is reported on stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from demo_seeds import conditions

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message
from clawpipe.model.engines.base import Sampling
from clawpipe.model.engines.embedded import EmbeddedConversations, EmbeddedEngine
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.calls import WrittenFormat
from clawpipe.model.policy.load import load_base
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.shop import ShopEnvironment
from clawpipe.play.workers.episodes import EpisodeLimits, run_episodes

GROUP, TEMPERATURE = 8, 0.8
BATCHES = (8, 16, 32, 64)
CALLS: WrittenFormat = "pythonic"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m-instruct", help="built-in base model; `random` is a smoke test")
    parser.add_argument("--items", type=int, default=8, help="task items, of 8 rollouts each")
    parser.add_argument("--tokens", type=int, default=24, help="sampled tokens per row")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tool", type=float, default=0.1, help="seconds that an answer of the environment takes")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    result = _measure(arguments)
    print(json.dumps(result) if arguments.json else json.dumps(result, indent=2))
    return 0


def _measure(arguments: argparse.Namespace) -> JsonObject:
    base, load = resolve_base(arguments.model).path, os.getloadavg()[0]
    engine, plain = EmbeddedEngine(base, None, device="cpu"), load_base(base, "float32", torch.device("cpu"))
    prompts = _prompts(base, arguments.items)
    speed = _speed(engine, plain, prompts, arguments.tokens, arguments.repeats)
    step = _step(engine, plain, prompts, arguments.tokens, arguments.repeats)
    busy = {f"waves_{waves}": _busy(engine, base, waves, arguments) for waves in (1, 2, 4)}
    made = {"model": arguments.model, "threads": arguments.threads, "load_before": load, "tokens": arguments.tokens}
    return {"conditions": conditions() | made | {"tool_seconds": arguments.tool}, "speed": speed, "step": step, "busy": busy}


def _prompts(base: Path, count: int) -> list[list[int]]:
    environment = ShopEnvironment()
    renderer = Renderer(load_tokenizer(base), CALLS, environment.tools())
    items = environment.items("train", count, 0)
    return [renderer.prompt([*environment.preamble(), *item.messages]) for item in items for _ in range(GROUP)]


# ---- against transformers.generate


def _speed(engine: EmbeddedEngine, plain: Any, prompts: list[list[int]], tokens: int, repeats: int) -> JsonObject:
    sides: dict[str, Callable[[], None]] = {"embedded": lambda: _check(plain, prompts, _embedded(engine, prompts, tokens), tokens)}
    for batch in BATCHES:
        sides[f"generate_{batch}"] = lambda batch=batch: _check(plain, prompts, _generate(plain, prompts, tokens, batch), tokens)
    for name, side in sides.items():
        side()  # warm, and right
        _told(f"{name}: log-probs are right")
    timed = {"embedded": lambda: _embedded(engine, prompts, tokens)}
    timed |= {f"generate_{batch}": lambda batch=batch: _generate(plain, prompts, tokens, batch) for batch in BATCHES}
    seconds = _interleaved(timed, repeats)
    rates = {name: len(prompts) * tokens / value for name, value in seconds.items()}
    best = max(rate for name, rate in rates.items() if name != "embedded")
    return {"tokens_per_second": rates, "embedded_over_best_generate": rates["embedded"] / best, "rows": len(prompts)}


Turn = tuple[list[int], list[float]]


def _embedded(engine: EmbeddedEngine, prompts: list[list[int]], tokens: int) -> list[Turn]:
    turns = engine.begin(prompts).sample({row: row for row in range(len(prompts))}, Sampling(TEMPERATURE, tokens))
    return [(turns[row].ids, turns[row].logprobs) for row in range(len(prompts))]


@torch.inference_mode()
def _generate(model: Any, prompts: list[list[int]], tokens: int, batch: int) -> list[Turn]:
    """Sample with transformers, padded on the left, and gather the log-probs of what was sampled."""
    turns: list[Turn] = []
    for start in range(0, len(prompts), batch):
        part = prompts[start : start + batch]
        width = max(map(len, part))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in part])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in part])
        settings = {
            "do_sample": True,
            "temperature": TEMPERATURE,
            "top_k": 0,
            "top_p": 1.0,
            "eos_token_id": None,
            "pad_token_id": 0,
        }
        out = model.generate(
            ids, attention_mask=mask, max_new_tokens=tokens, output_logits=True, return_dict_in_generate=True, **settings
        )
        sampled = out.sequences[:, width:]
        likely = (torch.stack(out.logits, 1).float() / TEMPERATURE).log_softmax(-1).gather(-1, sampled[..., None])[..., 0]
        turns += zip(sampled.tolist(), likely.tolist(), strict=True)
    return turns


@torch.inference_mode()
def _check(model: Any, prompts: list[list[int]], turns: Sequence[Turn], tokens: int) -> None:
    """Raise unless a row's log-probs are those of a forward pass."""
    ids, found = turns[-1]
    assert len(ids) == tokens
    row = torch.tensor([[*prompts[-1], *ids]])
    likely = (model(row).logits[0, -tokens - 1 : -1].float() / TEMPERATURE).log_softmax(-1)
    expected = likely.gather(-1, torch.tensor(ids)[:, None])[:, 0]
    assert torch.allclose(expected, torch.tensor(found), atol=1e-3), (expected - torch.tensor(found)).abs().max()


def _interleaved(sides: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the median seconds of each side, which take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            begun = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begun)
            _told(f"{name}: {seconds[name][-1]:.2f} s")
    return {name: statistics.median(values) for name, values in seconds.items()}


def _told(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


# ---- against the linear layers


def _step(engine: EmbeddedEngine, plain: Any, prompts: list[list[int]], tokens: int, repeats: int) -> JsonObject:
    """Return the seconds of one step of all rows (the difference of a long and a short turn), and of its linear layers alone."""
    linears = [module for module in plain.modules() if isinstance(module, torch.nn.Linear)]
    inputs = [torch.randn(len(prompts), module.in_features) for module in linears]

    @torch.inference_mode()
    def alone() -> None:
        for module, rows in zip(linears, inputs, strict=True):
            module(rows)

    sides = {"long": lambda: _embedded(engine, prompts, tokens), "short": lambda: _embedded(engine, prompts, 1), "linears": alone}
    seconds = _interleaved(sides, max(repeats, 3))
    step = (seconds["long"] - seconds["short"]) / (tokens - 1)
    return {"seconds": step, "linear_layers_seconds": seconds["linears"], "share_of_matmul_rate": seconds["linears"] / step}


# ---- slow tools


class _Slow(ShopEnvironment):
    """The shop, whose answers take a while."""

    seconds = 0.0

    def start(self, item: TaskItem) -> Any:
        episode = super().start(item)
        respond = episode.respond

        def later(messages: Sequence[Message]) -> list[Message] | None:
            time.sleep(self.seconds)
            return respond(messages)

        episode.respond = later  # type: ignore[method-assign]
        return episode


class _Timed:
    """The engine, and the seconds that it has generated."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self._engine, self.context, self.seconds = engine, engine.context, 0.0

    def begin(self, prompts: Sequence[Sequence[int]]) -> EmbeddedConversations:
        begun = time.perf_counter()
        talks = self._engine.begin(prompts)
        self.seconds += time.perf_counter() - begun
        sample = talks.sample

        def timed(seeds: dict[int, int], sampling: Sampling) -> Any:
            begun = time.perf_counter()
            turns = sample(seeds, sampling)
            self.seconds += time.perf_counter() - begun
            return turns

        talks.sample = timed  # type: ignore[method-assign]
        return talks


def _busy(engine: EmbeddedEngine, base: Path, waves: int, arguments: argparse.Namespace) -> JsonObject:
    environment, timed = _Slow(), _Timed(engine)
    environment.seconds = arguments.tool
    renderer = Renderer(load_tokenizer(base), CALLS, environment.tools())
    limits = EpisodeLimits(TEMPERATURE, arguments.tokens, 2, engine.context)
    begun = time.perf_counter()
    run_episodes(timed, renderer, environment, environment.items("train", arguments.items, 0), GROUP, limits, 0, waves=waves)
    seconds = time.perf_counter() - begun
    _told(f"{waves} waves: {seconds:.2f} s")
    return {"seconds": seconds, "generating": timed.seconds, "share": timed.seconds / seconds}


if __name__ == "__main__":
    raise SystemExit(main())
