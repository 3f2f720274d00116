"""What decides about the names of records, and the names: all that the processes which read have to agree on."""

from __future__ import annotations

import msgspec

from clawpipe.importers.labels import Label

Place = tuple[str, int, int]  # a file, the first of the lines that something is made of, and how many they are


class Claim(msgspec.Struct, array_like=True, gc=False):
    """What decides about a conversation's names.

    Attributes:
        content: digest of what was read; None where the row has its names already.
        turns, whole: digests of what was said up to each turn, and of all; empty where its session has no name.
        prompt: what was asked, where there are labels.
    """

    item_id: str
    trajectory_id: str | None
    content: bytes | None
    session: str | None
    turns: list[int]
    whole: int
    place: Place
    prompt: str | None = None


class Claims(msgspec.Struct, tag=True):
    """Of a batch. Names of pairs and prompts are digests of what they say.

    Attributes:
        gone: places of conversations that were forgotten; `gone_rows` counts pairs and prompts that were.
        last: none of the same piece follows.
    """

    conversations: list[Claim]
    pairs: list[str]
    prompts: list[str]
    gone: list[Place]
    gone_rows: int
    last: bool


class Name(msgspec.Struct, array_like=True, gc=False):
    """A conversation's names. `index` is its number among the attempts at its item; its first `known` turns are stored already."""

    trajectory_id: str
    item_id: str
    index: int
    known: int = 0
    label: Label | None = None


class Admitted(msgspec.Struct):
    """What is new of a batch, in the order of its claims: names of conversations, whether each pair is, ordinals of prompts."""

    conversations: list[Name | None]
    pairs: list[bool]
    prompts: list[int | None]
