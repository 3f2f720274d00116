"""The held-out split: an identity's hash decides its side, so the side is the same on every night and machine."""

from __future__ import annotations

import hashlib
from typing import Literal

from clawpipe.errors import ConfigError

Split = Literal["train", "heldout"]


def stable_hash(text: str) -> int:
    """Return 64 bits of the sha256 of `text`: the same in every process and version, unlike `hash` or a database's."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def heldout(identity: str, fraction: float, salt: str = "") -> bool:
    """Return whether `identity` is held out, as `fraction` of all identities are; `salt` draws another split."""
    return stable_hash(f"{salt}/{identity}") < fraction * 2**64


def is_heldout_split(split: str) -> bool:
    """Return True for "heldout" and False for "train".

    Raises:
        ConfigError: another name.
    """
    if split not in ("train", "heldout"):
        raise ConfigError(f"no split {split!r}", fix="the splits are train and heldout")
    return split == "heldout"
