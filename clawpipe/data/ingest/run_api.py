"""Take batches of scored groups from `run-api`, the server of Atropos at which its environments leave what they have played.

clawpipe registers as the trainer. The server keeps everything in memory and gives each batch away once, without asking whether it
arrived: what it had sent when a connection broke, or when this process was killed before the batch was on the disk, is lost. All
else is kept: a batch is a file that appears whole, and the number of files is the number of batches taken, so a reader that is
started again goes on where the last one stood.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.files import exclusive, write_atomic
from clawpipe.core.system import faults
from clawpipe.errors import BusyError, ConfigError, DataError

_POLL, _TIMEOUT = 1.0, 60.0  # seconds
_TOLD = 60  # polls after which it is told again what is waited for
_NAME = "batch-{:06d}.jsonl"
_REFUSED = 500  # the status of a batch that is asked for after /reset_data
_START = "start it with `run-api --host 127.0.0.1 --port 8000`"


@dataclass(frozen=True)
class Wanted:
    """What the trainer asks for when it registers.

    Attributes:
        batch_size: sequences of a batch. The server forms only batches of exactly this many.
        max_tokens: the longest sequence; environments drop groups with a longer one.
        batches: of all runs into the folder together; environments stop after as many.
    """

    batch_size: int
    max_tokens: int
    batches: int


@dataclass(frozen=True)
class Taken:
    """A batch that is on the disk: its number from 1, its groups and sequences, and the sequences that have no messages."""

    number: int
    groups: int
    sequences: int
    silent: int


class UnregisteredError(Exception):
    """The server knows no trainer: it was started anew, or its data were reset."""


class RunApi:
    """The calls of a trainer. Raises BusyError where the server does not answer, and DataError where it answers something else."""

    def __init__(self, url: str, client: httpx.Client) -> None:
        self._url, self._client = url.rstrip("/"), client

    def register(self, wanted: Wanted, done: int, folder: Path) -> None:
        """Register as the trainer, unless this is the one that is registered.

        Raises:
            ConfigError: another trainer is, with batches of another size; only a new server would forget it.
        """
        known = self._call("GET", "/info").get("batch_size")
        if known == wanted.batch_size:
            return
        if known != -1:
            fix = f"give --batch-size {known}, or start run-api anew"
            raise ConfigError(f"it has a trainer already, with batches of {known} sequences", self._url, fix)
        body = {
            "wandb_group": "clawpipe",
            "wandb_project": "clawpipe",
            "batch_size": wanted.batch_size,
            "max_token_len": wanted.max_tokens,
            "checkpoint_dir": str(folder),
            "save_checkpoint_interval": 0,
            "starting_step": done,
            "num_steps": wanted.batches,
        }
        self._call("POST", "/register", body)

    def batch(self) -> list[JsonObject] | None:
        """Return the groups of the next batch; None if there are too few sequences yet.

        Raises:
            UnregisteredError: no trainer is registered.
        """
        found = self._call("GET", "/batch")
        if found.get("status") == "error":
            raise UnregisteredError
        groups = found.get("batch")
        if groups is not None and not isinstance(groups, list):
            raise DataError("its batch is no list of groups", self._url, _START)
        return groups or None

    def status(self) -> JsonObject:
        """Return the number of batches that the server has formed, and the groups that wait."""
        return self._call("GET", "/status")

    def _call(self, method: str, path: str, body: JsonObject | None = None) -> JsonObject:
        try:
            response = self._client.request(method, self._url + path, json=body, timeout=_TIMEOUT)
            if path == "/batch" and response.status_code == _REFUSED:
                raise UnregisteredError
            response.raise_for_status()
            found: Any = response.json()
        except httpx.TransportError as error:
            raise BusyError(f"it does not answer: {type(error).__name__}", self._url, _START) from None
        except (httpx.HTTPStatusError, ValueError) as error:
            raise DataError(f"this is no run-api: {str(error).splitlines()[0]}", self._url + path, _START) from None
        if not isinstance(found, dict):
            raise DataError("this is no run-api: its answer is no JSON object", self._url + path, _START)
        return found


def take(
    api: RunApi,
    folder: Path,
    wanted: Wanted,
    sleep: Callable[[float], None] = time.sleep,
    waits: Callable[[str], None] | None = None,
) -> Iterator[Taken]:
    """Take batches until the folder has as many as are wanted, and yield each one when it is on the disk.

    Args:
        folder: gets a file of JSON Lines for each batch, one group a line, as `clawpipe ingest` reads them.
        sleep: waits between two questions.
        waits: is called with what is waited for, once a minute.

    Raises:
        InUseError: another process takes batches into the folder.
        ConfigError, BusyError, DataError: as RunApi's calls.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder / ".lock", f"the folder of batches {folder}"):
        done = len(batches_in(folder))
        if done < wanted.batches:
            api.register(wanted, done, folder)
        for number in range(done + 1, wanted.batches + 1):
            groups = _next_batch(api, wanted, number, folder, sleep, waits)
            faults.kill_point("run_api.batch_arrived")
            write_atomic(folder / _NAME.format(number), b"".join(orjson.dumps(group) + b"\n" for group in groups))
            yield _taken(number, groups)


def _waiting(api: RunApi, wanted: Wanted) -> str:
    queued = api.status().get("queue_size")
    if queued:
        return f"{queued} groups wait, and make no batch of exactly {wanted.batch_size} sequences yet"
    return "waits for environments: python my_env.py serve"


def batches_in(folder: Path) -> list[Path]:
    """Return the files of the batches in a folder, oldest first."""
    return sorted(folder.glob("batch-*.jsonl"))


def _next_batch(
    api: RunApi, wanted: Wanted, number: int, folder: Path, sleep: Callable[[float], None], waits: Callable[[str], None] | None
) -> list[JsonObject]:
    """Ask until there is a batch, and register again with a server that was started anew."""
    polls = 0
    while True:
        try:
            if groups := api.batch():
                return groups
        except UnregisteredError:
            api.register(wanted, number - 1, folder)
            continue
        if waits and polls % _TOLD == 0:
            waits(_waiting(api, wanted))
        sleep(_POLL)
        polls += 1


def _taken(number: int, groups: list[JsonObject]) -> Taken:
    sizes = [len(group.get("tokens") or ()) for group in groups]
    silent = sum(size for size, group in zip(sizes, groups, strict=True) if not group.get("messages"))
    return Taken(number, len(groups), sum(sizes), silent)
