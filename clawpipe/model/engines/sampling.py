"""Sample one token for each of several rows, each with settings of its own.

The steps are in vLLM's order: bias, penalties and constraint change a row's logits; the temperature divides them; min_p, top_k and
top_p remove all but the likeliest tokens. Inverse transform sampling with the row's own random numbers then draws the token, so the
other rows of a batch do not influence it. Log-probs are those of the unchanged logits over the full vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from clawpipe.model.engines.base import Likelihood, Sampling


class Constraint(Protocol):
    """A rule that says after each token which ones may follow, for one turn."""

    def restrict(self, logits: Tensor) -> None:
        """Set the logits (V,) of tokens that may not follow to minus infinity, in place."""
        ...

    def accept(self, token: int) -> None:
        """Advance the constraint by a sampled token."""
        ...


@dataclass(frozen=True)
class TurnSampling(Sampling):
    """How a turn is sampled, with what OpenAI's and vLLM's requests may add.

    top_k: the most tokens to draw from (0: all). min_p: least probability, as a share of the likeliest token's.
    presence, frequency: subtracted from the logit of a token that the turn holds, once, and for each time.
    repetition: divides positive logits, and multiplies negative ones, of tokens in prompt and turn.
    bias: added to the logits of tokens.
    """

    top_k: int = 0
    min_p: float = 0.0
    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0
    bias: dict[int, float] = field(default_factory=dict)

    @property
    def penalised(self) -> bool:
        """Whether the tokens so far, or a bias, change the logits."""
        return bool(self.presence or self.frequency or self.repetition != 1 or self.bias)

    @property
    def cut(self) -> bool:
        """Whether only some of the likeliest tokens may be drawn."""
        return self.top_p < 1 or self.top_k > 0 or self.min_p > 0


class Place(NamedTuple):
    """Where a row is: tokens before its turn, tokens of the turn, a draw in [0, 1), how many rivals to report, a constraint."""

    prompt: Sequence[int]
    turn: Sequence[int]
    sampling: TurnSampling
    draw: float
    top: int
    constraint: Constraint | None


class Token(NamedTuple):
    """A sampled token, with its log-prob at the sampling temperature (1 when greedy) and its likelihood at temperature 1."""

    id: int
    logprob: float
    likelihood: Likelihood


def sample_tokens(logits: Tensor, places: Sequence[Place]) -> list[Token]:
    """Return one token for each row of float32 logits (N, V).

    Row by row: one row's vocabulary fits a core's cache, where all rows at once take ten times as long.
    """
    return [_sample(row, place) for row, place in zip(logits, places, strict=True)]


def _sample(logits: Tensor, place: Place) -> Token:
    """Sample one token from logits (V,)."""
    heat = place.sampling.temperature or 1.0
    raw = logits.log_softmax(-1)
    tempered = raw if heat == 1 else (logits / heat).log_softmax(-1)
    changed = _changed(logits, place)
    likely = tempered if changed is logits else (changed / heat).log_softmax(-1)
    token = _draw(likely, place) if place.sampling.temperature else int(likely.argmax())
    values, rivals = raw.topk(place.top)
    best = list(zip(rivals.tolist(), values.tolist(), strict=True))
    return Token(token, tempered[token].item(), Likelihood(raw[token].item(), best))


def _changed(logits: Tensor, place: Place) -> Tensor:
    """Return the logits after bias, penalties and constraint; the same tensor where there are none."""
    if not (place.sampling.penalised or place.constraint):
        return logits
    logits = logits.clone()
    if place.sampling.penalised:
        _penalise(logits, place)
    if place.constraint:
        place.constraint.restrict(logits)
    return logits


def _penalise(row: Tensor, place: Place) -> None:
    """Apply bias and penalties to the logits (V,) of one row, in place."""
    sampling = place.sampling
    if sampling.repetition != 1:
        seen = torch.tensor([*place.prompt, *place.turn], device=row.device).unique()
        held = row[seen]
        row[seen] = torch.where(held > 0, held / sampling.repetition, held * sampling.repetition)
    if place.turn and (sampling.presence or sampling.frequency):
        tokens, counts = torch.tensor(place.turn, device=row.device).unique(return_counts=True)
        row[tokens] -= sampling.presence + sampling.frequency * counts.to(row.dtype)
    for token, bias in sampling.bias.items():
        row[token] += bias


def _draw(likely: Tensor, place: Place) -> int:
    """Draw a token from log-probs (V,)."""
    mass = likely.exp().double()
    if place.sampling.cut:
        _cut(mass, place.sampling)
    mass = mass.cumsum(-1)
    return min(int(torch.searchsorted(mass, place.draw * mass[-1], right=True)), len(mass) - 1)


def _cut(mass: Tensor, sampling: TurnSampling) -> None:
    """Set the probabilities (V,) of tokens that may not be drawn to 0, in place."""
    if sampling.min_p:
        mass[mass < sampling.min_p * mass.max()] = 0
    ranked, order = mass.sort(descending=True, stable=True)
    if 0 < sampling.top_k < len(mass):
        mass[order[sampling.top_k :]] = 0
        ranked[sampling.top_k :] = 0
    if sampling.top_p < 1:
        outside = ranked.cumsum(-1) - ranked >= sampling.top_p * ranked.sum()  # what is likelier holds enough already
        mass[order[outside]] = 0
