"""Shared-prefix packing: flatten many rows, as one token tree, into one sequence.

Rows that begin with the same tokens share them: the environment's preamble, each question, and the tokens that
several rollouts sampled alike before they diverge. A token's hidden state depends only on the tokens before it in its
row, so under a mask that shows each token its ancestors only, with positions by depth, log-probs and gradients equal
those of the rows computed one by one. Each shared token is computed, and trained through, once.

Rows enter the tree in the order of their tokens, so nodes are numbered depth first: the descendants of a node are one
interval of numbers, and two comparisons decide whether a token is an ancestor of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from clawpipe.learn.training.data.rows import Sample, groups_of

Pack = list[int]  # indices of samples


class TokenTree:
    """A trie of token sequences. Nodes are numbered as they are added, so a parent's number is below its children's.

    Args:
        share: False gives every sequence separate nodes, from the root on.
    """

    def __init__(self, share: bool = True) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.depths: list[int] = []
        self._share = share
        self._children: dict[tuple[int, int], int] = {}

    def add(self, ids: Sequence[int]) -> list[int]:
        """Add a sequence; return its nodes, root first."""
        node, path = -1, []
        for token in ids:
            child = self._children.get((node, token))
            node = self._new(node, token) if child is None else child
            path.append(node)
        if not self._share:
            self._children.clear()
        return path

    def growth(self, ids: Sequence[int]) -> int:
        """Return how many nodes `add` would create."""
        node = -1
        for shared, token in enumerate(ids):
            if (node, token) not in self._children:
                return len(ids) - shared
            node = self._children[node, token]
        return 0

    def ends(self) -> np.ndarray:
        """Return int [T]: node i's descendants are i + 1 .. ends[i] - 1, if sequences were added in sorted order."""
        ends = np.arange(1, len(self.tokens) + 1)
        for node in range(len(self.parents) - 1, -1, -1):
            parent = self.parents[node]
            if parent >= 0:
                ends[parent] = max(ends[parent], ends[node])
        return ends

    def _new(self, parent: int, token: int) -> int:
        node = len(self.tokens)
        self._children[parent, token] = node
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1 if parent >= 0 else 0)
        return node


def inputs_of(sample: Sample) -> list[int]:
    """Return the tokens that the model reads: the last trained token and those after it predict nothing that is trained."""
    return sample.token_ids[: sample.trained[-1]].tolist()


def plan_packs(
    samples: Sequence[Sample], pack_tokens: int, steps: int, seed: int, epochs: int = 1, share: bool = True, whole: bool = True
) -> list[list[Pack]]:
    """Plan which samples go into which pack of which optimizer step.

    Groups are shuffled by seed and epoch and sharded evenly; a group is never split between two steps of an epoch. With
    fewer groups than `steps` an epoch has one step per group. Every step gets the same number of packs, so that the
    number of accumulated gradients is constant; missing packs are empty.

    Args:
        whole: False for rows that are not compared within their groups: where there are fewer groups than `steps`, each row is
            then a group. Conversations that all begin with one greeting are one group.

    Returns:
        one list of packs per optimizer step, epochs * min(steps, groups) of them.
    """
    groups = _groups_of(samples)
    if not whole and len(groups) < steps:
        groups = [[index] for index in range(len(samples))]
    plan = [
        fill_packs(samples, [index for group in part for index in group], pack_tokens, share)
        for epoch in range(epochs)
        for part in _groups_by_step(groups, steps, np.random.default_rng((seed, epoch)))
    ]
    longest = max(len(packs) for packs in plan)
    return [packs + [[] for _ in range(longest - len(packs))] for packs in plan]


def _groups_of(samples: Sequence[Sample]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for index, group in enumerate(groups_of(samples)):
        groups.setdefault(group, []).append(index)
    return list(groups.values())


def _groups_by_step(groups: list[list[int]], steps: int, generator: np.random.Generator) -> list[list[list[int]]]:
    parts = np.array_split(generator.permutation(len(groups)), min(steps, len(groups)))
    return [[groups[index] for index in part] for part in parts]


def fill_packs(samples: Sequence[Sample], indices: Iterable[int], pack_tokens: int, share: bool = True) -> list[Pack]:
    """Fill one pack after the other, in order. A row that is longer than a pack gets a pack alone."""
    packs: list[Pack] = []
    tree = TokenTree(share)
    for index in indices:
        ids = inputs_of(samples[index])
        if not packs or len(tree.tokens) + tree.growth(ids) > pack_tokens:
            packs.append([])
            tree = TokenTree(share)
        tree.add(ids)
        packs[-1].append(index)
    return packs


def build_pack(samples: Sequence[Sample], share: bool = True) -> dict[str, Tensor]:
    """Build a pack's tensors: T tree tokens, N trained tokens, U of which differ in (position, token, temperature, top_tokens).

    Model inputs: input_ids and position_ids int [1, T], ends int [T] (see `TokenTree.ends`). Requests to the head: score_index
    int [U] (the position whose hidden state predicts the token), targets int [U], temperatures float [U], and top int [U, K]
    where samples have a stream top_tokens. Streams [N]: score (index into the U), weights, rows, and the samples' streams.
    Without samples the pack has one token and empty streams.

    Args:
        samples: rows of the pack; streams follow their order.
        share: whether rows with a common prefix share its tokens.
    """
    tree, paths = _grow(samples, share)
    asked, score = _distinct_scores(samples, paths)
    return {
        "input_ids": torch.tensor([tree.tokens]),
        "position_ids": torch.tensor([tree.depths]),
        "ends": torch.from_numpy(tree.ends()),
        **asked,
        "score": score,
        **_streams(samples),
    }


def flat_batch(samples: Sequence[Sample]) -> dict[str, Tensor]:
    """Return the streams [N] of a pack for scores that come row by row: `score` is then a token's own number."""
    streams = _streams(samples)
    return {"score": torch.arange(len(streams["rows"])), **streams}


def _streams(samples: Sequence[Sample]) -> dict[str, Tensor]:
    return {
        "weights": _stream([np.full(len(sample.trained), sample.weight) for sample in samples], np.float32),
        "rows": _stream([np.full(len(sample.trained), row) for row, sample in enumerate(samples)], np.int64),
        **{name: torch.from_numpy(np.concatenate([sample.streams[name] for sample in samples])) for name in _names(samples)},
    }


def _grow(samples: Sequence[Sample], share: bool) -> tuple[TokenTree, list[list[int]]]:
    """Build the tree of the samples in sorted order, and return it with the path of each."""
    tree, rows = TokenTree(share), [inputs_of(sample) for sample in samples]
    paths: list[list[int]] = [[] for _ in rows]
    for index in sorted(range(len(rows)), key=rows.__getitem__):
        paths[index] = tree.add(rows[index])
    if not rows:
        tree.add([0])
    return tree, paths


def _names(samples: Sequence[Sample]) -> list[str]:
    return list(samples[0].streams) if samples else []


def _distinct_scores(samples: Sequence[Sample], paths: Sequence[list[int]]) -> tuple[dict[str, Tensor], Tensor]:
    """Return the distinct requests to the head, and for each trained token the index of its request.

    Rollouts that sampled the same tokens request the same score: the head, whose vocabulary is wide, computes it once.
    """
    width = samples[0].streams["top_tokens"].shape[1] if "top_tokens" in _names(samples) else 0
    tops = [(f"top{rank}", "i8") for rank in range(width)]
    asked = np.empty(
        sum(len(sample.trained) for sample in samples), dtype=[("position", "i8"), ("token", "i8"), ("temperature", "f4"), *tops]
    )
    start = 0
    for sample, path in zip(samples, paths, strict=True):
        part = asked[start : start + len(sample.trained)]
        part["position"] = np.asarray(path)[sample.trained - 1]
        part["token"] = sample.token_ids[sample.trained]
        part["temperature"] = sample.temperature
        for rank, (name, _) in enumerate(tops):
            part[name] = sample.streams["top_tokens"][:, rank]
        start += len(sample.trained)
    wanted, score = np.unique(asked, return_inverse=True)
    streams = {"score_index": wanted["position"], "targets": wanted["token"], "temperatures": wanted["temperature"]}
    if tops:
        streams["top"] = np.stack([wanted[name] for name, _ in tops], axis=1)
    return {name: torch.from_numpy(values.copy()) for name, values in streams.items()}, torch.from_numpy(score)


def _stream(parts: Sequence[np.ndarray], dtype: type) -> Tensor:
    return torch.from_numpy(np.concatenate([np.empty(0, dtype), *parts]).astype(dtype))
