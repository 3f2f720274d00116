"""Which side of the held-out split an identity is on: decided by its hash, so it is the same on every night and machine."""

from __future__ import annotations

import hashlib
from typing import Literal

from clawpipe.errors import ConfigError

Split = Literal["train", "heldout"]


def stable_hash(text: str) -> int:
    """64 bits of sha256 of `text`: the same in every process, version and library, unlike `hash` or a database's."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def heldout(identity: str, fraction: float, salt: str = "") -> bool:
    """Whether `identity` is held out, which happens to `fraction` of all identities; `salt` draws another split."""
    return stable_hash(f"{salt}/{identity}") < fraction * 2**64


def is_heldout_split(split: str) -> bool:
    """True for "heldout", False for "train".

    Raises:
        ConfigError: another name.
    """
    if split not in ("train", "heldout"):
        raise ConfigError(f"no split {split!r}", fix="the splits are train and heldout")
    return split == "heldout"
