"""One home of several: promote, roll back and look at random, in children that are killed at random. A script.

    random_moves.py HOME SEED COUNT

Prints one JSON line for each operation that a child has acknowledged.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import uuid
from pathlib import Path

from mlflow import MlflowClient

from clawpipe.core.store.home import Home
from clawpipe.errors import BusyError, NotFoundError
from clawpipe.learn.evaluation.verdict.looks import Looks
from clawpipe.record.registry.promotions import promote, rollback
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.registry.versions import CHAMPION

POINTS = ("promote.before_alias", "promote.after_alias", "promote.after_log")


def move(tracking: Tracking, chance: random.Random) -> dict:
    """Promote as a night does, promote by hand, roll back, or look; return what came of it."""
    kind, who = chance.choice(["night", "hand", "back", "look"]), f"home {tracking.home.name}"
    version = chance.choice("123456")
    try:
        if kind == "look":
            night, item = uuid.uuid4().hex, chance.choice("abc")
            Looks(tracking.home, tracking.model_name, "shop").record(night, night, [item])
            return {"look": item}
        if kind == "back":
            made = rollback(tracking, who=who, reason="random")
        elif kind == "hand":
            made = promote(tracking, version, who=who, reason="random", forced=True)
        else:
            aliases = MlflowClient(tracking.uri, tracking.uri).get_registered_model(tracking.model_name).aliases
            current = str(aliases[CHAMPION]) if CHAMPION in aliases else None
            made = promote(tracking, version, who=who, reason="random", night=uuid.uuid4().hex, expected=current)
        return {"move": made.id} if made else {"same": version}
    except (BusyError, NotFoundError) as error:  # another home was faster, or there is nothing to go back to
        return {"refused": type(error).__name__}


def child(tracking: Tracking, seed: int, out: int) -> None:
    chance = random.Random(seed)
    if chance.random() < 0.4:
        os.environ["CLAWPIPE_KILL_AT"] = f"{chance.choice(POINTS)}#{chance.randint(1, 4)}"
    while True:
        os.write(out, f"{json.dumps(move(tracking, chance))}\n".encode())


def main(home: str, seed: int, count: int) -> None:
    tracking, chance, done = Tracking.of(Home(Path(home)), "agent"), random.Random(seed), 0
    while done < count:
        read, write = os.pipe()
        number = chance.getrandbits(32)
        if (pid := os.fork()) == 0:
            try:
                child(tracking, number, write)
            finally:
                os._exit(1)
        os.close(write)
        text, wanted = b"", chance.randint(1, 12)
        while text.count(b"\n") < wanted and (data := os.read(read, 4096)):
            text += data
        select.select([], [], [], chance.random() * 0.2)  # somewhere in the next operation
        os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        while data := os.read(read, 4096):
            text += data
        os.close(read)
        if os.WTERMSIG(status) != signal.SIGKILL:
            sys.exit(f"the child ended by itself: {status}")
        lines = text[: text.rfind(b"\n") + 1].decode()
        done += lines.count("\n")
        print(lines, end="", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
