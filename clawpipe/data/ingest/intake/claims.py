"""The messages between reading processes, which claim names for their records, and the main process, which assigns them."""

from __future__ import annotations

import msgspec

from clawpipe.data.importers.read.labels import Label

Place = tuple[str, int, int]  # file, first line, number of lines


class Claim(msgspec.Struct, array_like=True, gc=False):
    """The properties of a conversation that determine its names.

    Attributes:
        content: hexadecimal digest of the record; None if the row has its names already.
        turns, whole: digests of the messages up to each turn, and of all; empty if the session has no name.
        taught: a byte for each turn: 1 if it is taught.
        prompt: the prompt, if there are labels.
        earlier, earlier_turns: the name that earlier releases gave the session, if it was another one, and `turns` with it.
        rest: digest of what else tells equal contents apart; see `clawpipe.data.ingest.intake.rows.rest_of`.
    """

    item_id: str
    trajectory_id: str | None
    content: bytes | None
    session: str | None
    turns: list[int]
    whole: int
    taught: bytes
    place: Place
    prompt: str | None = None
    rest: int = 0
    earlier: str | None = None
    earlier_turns: list[int] = []


class Claims(msgspec.Struct, tag=True):
    """The claims of a batch. Names of pairs and prompts are digests of their content.

    Attributes:
        gone: places of forgotten conversations; `gone_rows` counts forgotten pairs and prompts.
        last: whether this is the last batch of its piece.
    """

    conversations: list[Claim]
    pairs: list[str]
    prompts: list[str]
    gone: list[Place]
    gone_rows: int
    last: bool


class Name(msgspec.Struct, array_like=True, gc=False):
    """The names of a conversation. `index` numbers the attempts at its item; its turns at the places `known` are stored already."""

    trajectory_id: str
    item_id: str
    index: int
    known: list[int] = []
    label: Label | None = None


class Admitted(msgspec.Struct):
    """The new records of a batch, in the order of its claims: names of conversations, whether each pair is new, ordinals of
    prompts.
    """

    conversations: list[Name | None]
    pairs: list[bool]
    prompts: list[int | None]
