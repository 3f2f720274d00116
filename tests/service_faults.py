"""What goes wrong at the fakes of services."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Fault:
    """What goes wrong at some requests, counted from 1: `first` to `last`.

    Attributes:
        at: which requests are counted, as the fake says.
        status: answered instead; 0: the connection is closed without an answer; -1: after half of it.
        late: the request is executed before, so that only its answer is lost.
    """

    at: str
    status: int
    first: int = 1
    last: int = 1
    late: bool = False
