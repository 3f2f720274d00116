"""Bring what a home wrote into its own files into a shared ledger, once, however often it is killed meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.ledger.rows import Carried, SharedLedger
from clawpipe.core.store.home import Home
from clawpipe.core.store.identity import home_id
from clawpipe.errors import DataError

_DONE = "carried"  # the log of what has been brought along
_PROMOTIONS, _LOOKS = "promotions", "looks"


class _Done(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    home: str
    log: str


def carry_over(ledger: SharedLedger, home: Home, promotions: bool) -> None:
    """Add the moves and looks of a home's files to a ledger. Later calls find that it has been done.

    Args:
        promotions: whether the home's moves were made in the ledger's registry; looks hold in any.
    """
    logs = [log for log in ([_PROMOTIONS] if promotions else []) + [_LOOKS] if (home.root / f"{log}.jsonl").exists()]
    if not logs:
        return
    mine = home_id(home)
    done = {found.log for found in ledger.read(_DONE, _Done).entries if found.home == mine}
    for log in logs:
        if log not in done:
            with ledger.lock("registry" if log == _PROMOTIONS else log):
                _carry(ledger, home, log, mine)


def _carry(ledger: SharedLedger, home: Home, log: str, mine: str) -> None:
    notes = sorted(home.root.glob(f"{log}.*.pending.json"))
    ledger.carry(log, (_entry(log, mine, number, line) for number, line in enumerate(_lines(home, log))))
    ledger.carry(log, (_entry(log, mine, 0, json.loads(note.read_bytes()), pending=True) for note in notes))
    done = _Done(home=mine, log=log)
    ledger.carry(_DONE, [Carried(f"{mine}/{log}", done.model_dump_json(), "")])
    for note in notes:
        note.unlink(missing_ok=True)


def _entry(log: str, mine: str, number: int, line: JsonObject, pending: bool = False) -> Carried:
    if log == _LOOKS:
        line = line | {"home": line.get("home") or mine}
    return Carried(str(line.get("id") or f"{mine}/{number}"), json.dumps(line), str(line["time"]), pending)


def _lines(home: Home, log: str) -> Iterator[JsonObject]:
    """Yield the finished lines of a file."""
    path = home.root / f"{log}.jsonl"
    data = path.read_bytes()
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            yield json.loads(line)
        except ValueError:
            raise DataError(f"line {number} is damaged", str(path)) from None
