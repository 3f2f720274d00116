"""Count what judges spend in a night. The count lies on disk, and a request is paid for before it is sent: so a budget holds over
retries, kills, steps and requests at once.
"""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

from clawpipe.core.store.sqlite import closed_with
from clawpipe.errors import DataError

_TABLE = """create table if not exists spent (
    night text not null, judge text not null, requests integer not null default 0, failed integer not null default 0,
    estimated integer not null default 0, prompt_tokens integer not null default 0, reply_tokens integer not null default 0,
    held_tokens integer not null default 0, money real not null default 0, held_money real not null default 0,
    seconds real not null default 0, primary key (night, judge)
)"""
_HOLD = """insert into spent (night, judge, requests, held_tokens, held_money) values (?, ?, 1, ?, ?)
on conflict do update set requests = requests + 1, held_tokens = held_tokens + excluded.held_tokens,
    held_money = held_money + excluded.held_money"""
_SETTLE = """update spent set held_tokens = held_tokens - :held_tokens, held_money = max(held_money - :held_money, 0),
    prompt_tokens = prompt_tokens + :prompt, reply_tokens = reply_tokens + :reply, money = money + :money,
    failed = failed + :failed, estimated = estimated + :estimated, seconds = seconds + :seconds
where night = :night and judge = :judge"""
_TOTAL = """select coalesce(sum(prompt_tokens + reply_tokens + held_tokens), 0), coalesce(sum(money + held_money), 0)
from spent where night = ?"""
_BYTES = 3  # of a token, where an endpoint does not count: English has about four, Chinese three or more

_night: ContextVar[str] = ContextVar("night", default="")


@contextmanager
def spending_of(night: str) -> Iterator[None]:
    """Let the judges that are made in this block spend from the count of this night."""
    token = _night.set(night)
    try:
        yield
    finally:
        _night.reset(token)


class Tokens(NamedTuple):
    """Tokens of a request and of its reply."""

    prompt: int
    reply: int

    @property
    def total(self) -> int:
        return self.prompt + self.reply


@dataclass(frozen=True)
class Budget:
    """The most that a night may spend: tokens, and money at prices of a million tokens; None: no limit."""

    tokens: int | None = None
    money: float | None = None
    prompt_price: float = 0.0
    reply_price: float = 0.0

    def price(self, tokens: Tokens) -> float:
        return (tokens.prompt * self.prompt_price + tokens.reply * self.reply_price) / 1e6

    def allows(self, tokens: int, money: float) -> bool:
        return (self.tokens is None or tokens <= self.tokens) and (self.money is None or money <= self.money)


@dataclass(frozen=True)
class Spent:
    """What a judge has spent in a night.

    Attributes:
        requests: that were sent, tries that failed among them (`failed`).
        estimated: requests whose tokens are estimated, since the endpoint did not count them.
        held_tokens: of requests under way; once no process runs, of those whose answer a kill has lost: the most that they cost.
        seconds: waited for answers, summed over requests.
    """

    judge: str
    requests: int = 0
    failed: int = 0
    estimated: int = 0
    prompt_tokens: int = 0
    reply_tokens: int = 0
    held_tokens: int = 0
    money: float = 0.0
    held_money: float = 0.0
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.reply_tokens + self.held_tokens


_COLUMNS = ", ".join(field.name for field in fields(Spent))


class Ledger:
    """What the judges of a night have spent. Threads and processes may share it.

    Args:
        path: its file; None: it lies in memory, for judges outside of a night.

    Raises:
        DataError: the file is damaged.
    """

    def __init__(self, path: Path | None, night: str) -> None:
        self.night, self._path, self._lock = night, path, threading.Lock()
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(path or ":memory:", timeout=60, check_same_thread=False, isolation_level=None)
        closed_with(self, self._database)
        with self._transaction():
            self._database.execute(_TABLE)

    @classmethod
    def beside(cls, votes: Path) -> Ledger:
        """Return the ledger of the night that runs, beside the file of votes; outside of a night one in memory."""
        night = _night.get()
        return cls(_file_beside(votes) if night else None, night)

    def hold(self, judge: str, most: Tokens, budget: Budget) -> bool:
        """Pay for a request the most that it may cost; False, and nothing is paid, where the budget does not allow it."""
        with self._transaction():
            tokens, money = self._database.execute(_TOTAL, (self.night,)).fetchone()
            allowed = budget.allows(tokens + most.total, money + budget.price(most))
            if allowed:
                self._database.execute(_HOLD, (self.night, judge, most.total, budget.price(most)))
        return allowed

    def settle(
        self,
        judge: str,
        held: Tokens,
        cost: Tokens,
        budget: Budget,
        seconds: float,
        *,
        failed: bool = False,
        estimated: bool = False,
    ) -> None:
        """Replace what a request has paid by what it cost."""
        values = {"held_tokens": held.total, "held_money": budget.price(held), "money": budget.price(cost), **cost._asdict()}
        values |= {"failed": failed, "estimated": estimated, "seconds": seconds, "night": self.night, "judge": judge}
        with self._transaction():
            self._database.execute(_SETTLE, values)

    def total(self) -> tuple[int, float]:
        """Return tokens and money of all judges of the night."""
        with self._transaction():
            return self._database.execute(_TOTAL, (self.night,)).fetchone()

    def by_judge(self) -> list[Spent]:
        with self._transaction():
            rows = self._database.execute(f"select {_COLUMNS} from spent where night = ? order by judge", (self.night,)).fetchall()
        return [Spent(*row) for row in rows]

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            try:
                self._database.execute("begin immediate")
                yield
                self._database.execute("commit")
            except sqlite3.DatabaseError as error:
                what = f"the count of what judges have spent cannot be read or written: {error}"
                raise DataError(what, str(self._path), "remove it: budgets begin anew") from error
            finally:
                if self._database.in_transaction:
                    self._database.execute("rollback")


def spent_in(votes: Path, night: str) -> list[Spent]:
    """Return what each judge has spent in a night, from the file beside that of the votes."""
    if not _file_beside(votes).exists():
        return []
    ledger = Ledger(_file_beside(votes), night)
    try:
        return ledger.by_judge()
    finally:
        ledger.close()


def _file_beside(votes: Path) -> Path:
    return votes.with_name("spent.sqlite")


def estimated(text: str) -> int:
    """Return about how many tokens a text has, rather too many than too few."""
    return math.ceil(len(text.encode(errors="replace")) / _BYTES)
