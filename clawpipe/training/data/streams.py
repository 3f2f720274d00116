"""From what is recorded of a row to the per-token streams that its method trains on.

Advantages: sft, grpo and ppo have those of the samples (a critic's replace them later). With A for them, t for the
teacher's log-prob and b for the behaviour policy's, opd and combine have, of a row with a hint,

    form token   w_rl * A + w_opd * clip(t - b, -clip, clip)
    form topk    w_rl * A, and w_opd times a divergence in the loss, where the stream `distil` is 1

and of a row without one w_rl * A alone: no hint is no opinion, not an opinion of 0. So it is with the tokens of a row of which only
some turns have a hint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from clawpipe.config.training import Opd, Train
from clawpipe.training.methods import needs, weights_of

Streams = dict[str, np.ndarray]
MISSING = "token_scores_missing"


def streams_of(train: Train, row: Mapping[str, Any], scores: Mapping[str, Any] | None, trained: np.ndarray) -> Streams | str:
    """The streams of a row, or why it cannot be trained on.

    Args:
        train: method and its settings.
        row: a row of `samples`, lists as arrays [T].
        scores: its row of `token_scores`, lists as arrays over the true positions of the mask; None if there is none.
        trained: int [N], positions that carry loss, all of them inside of the mask.
    """
    w_rl, _ = weights_of(train)
    streams = {"behaviour": _recorded(train, row)[trained], "advantages": np.float32(w_rl) * row["advantages"][trained]}
    if train.method == "ppo":
        if row["rewards"] is None:
            return "rewards_missing"
        streams["rewards"] = row["rewards"][trained].astype(np.float32)
    wanted = needs(train)
    if not wanted:
        return streams
    if scores is None:
        return MISSING
    places = np.searchsorted(np.flatnonzero(row["loss_mask"]), trained)
    for name in sorted(wanted & {"reference", "proximal"}):
        if not _covers(scores[name], row["loss_mask"].sum()):
            return MISSING
        streams[name] = scores[name][places]
    return _with_teacher(train, streams, scores, places, row["loss_mask"].sum()) if "teacher" in wanted else streams


def _recorded(train: Train, row: Mapping[str, Any]) -> np.ndarray:
    """Behaviour log-probs; sft has no use for them, and text that nobody sampled has none."""
    return np.zeros(len(row["logprobs"]), np.float32) if train.method == "sft" else row["logprobs"].astype(np.float32)


def _covers(values: np.ndarray | None, count: int) -> bool:
    return values is not None and len(values) == count


def _with_teacher(train: Train, streams: Streams, scores: Mapping[str, Any], places: np.ndarray, count: int) -> Streams | str:
    w_rl, w_opd = weights_of(train)
    hinted = scores["hint"] is not None
    taught = np.full(count, hinted) if scores.get("taught") is None else scores["taught"]
    if not hinted and not w_rl:
        return "no_hint"
    if hinted and not (_is_complete(train.opd, scores, count) and len(taught) == count):
        return MISSING
    streams["distil"] = taught[places].astype(np.float32)
    if train.opd.form == "topk":
        return streams | _compared(train.opd.top_k, scores if hinted else None, places)
    if hinted:
        opinion = np.clip(scores["teacher"][places] - streams["behaviour"], -train.opd.clip, train.opd.clip)
        streams["advantages"] = streams["advantages"] + np.float32(w_opd) * opinion * streams["distil"]
    return streams


def _is_complete(opd: Opd, scores: Mapping[str, Any], count: int) -> bool:
    if opd.form == "token":
        return _covers(scores["teacher"], count)
    return scores["top_k"] == opd.top_k and all(_covers(scores[name], count * opd.top_k) for name in ("top_tokens", "top_teacher"))


def _compared(width: int, scores: Mapping[str, Any] | None, places: np.ndarray) -> Streams:
    """Streams [N, K]; of a row without a hint they are stand-ins, finite and without weight."""
    if scores is None:
        tokens, teacher = np.arange(width), np.full(width, -np.log(width + 1), np.float32)
        return {"top_tokens": np.tile(tokens, (len(places), 1)), "top_teacher": np.tile(teacher, (len(places), 1))}
    tokens, teacher = (scores[name].reshape(-1, width)[places] for name in ("top_tokens", "top_teacher"))
    return {"top_tokens": tokens.astype(np.int64), "top_teacher": teacher.astype(np.float32)}
