"""`skyrl-gym:ID`: environments of SkyRL's gym, on rows in the form of its datasets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.conversation.messages import Message
from clawpipe.errors import ConfigError, DataError, NotFoundError
from clawpipe.play.environments.base import Answer, Reason, TaskItem, Verdict
from clawpipe.play.environments.libraries.common import LibraryEnvironment, chosen, imported, sided, text_of

_FILE = "environment.options.file"
_ROLES = ("system", "user", "assistant")


class SkyRLGym(LibraryEnvironment):
    """An environment of skyrl-gym: it answers each turn of the policy, and gives each a reward.

    Args:
        word: the id, such as gsm8k; `module:ID` imports a module first that registers it.
        file: JSON Lines of tasks: {"prompt": [{"role": "user", "content": "..."}], "reward_spec": {"ground_truth": "7"}, ...}.
        config: the environment's configuration.
        share: of the tasks that are held out, in (0, 1).
        system: system message of every episode; "": none.
        reward: of an episode, all rewards of its turns: {"lowest": 0, "highest": 1, "success": 1}.
    """

    library = name = "skyrl-gym"

    def __init__(
        self,
        word: str,
        file: str,
        config: Mapping[str, Any] = {},
        share: float = 0.3,
        system: str = "",
        reward: Mapping[str, float] = {},
    ) -> None:
        super().__init__(word, reward, system)
        self._gym = imported(self.library, "skyrl_gym")
        module, _, self._id = word.rpartition(":")
        if module:
            imported(self.library, module)
        if self._id not in self._gym.registry:
            raise ConfigError(f"skyrl-gym has no {self._id!r}", word, f"it has {', '.join(sorted(self._gym.registry))}")
        self._config = imported(self.library, "omegaconf").OmegaConf.create(dict(config))
        rows = list(_rows(Path(file).expanduser()))
        self._sides = sided([self.item(_identity(row), _prompt(row), row) for row in rows], share)
        self._world(rows[0]).close()

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return tasks of a side of the split, in an order that the seed decides. Raises as `Environment.items`."""
        return [self.placed(item, split, place) for place, item in enumerate(chosen(self._sides, split, count, seed, self.name))]

    def distinct_items(self, split: str) -> int:
        """Return the number of tasks on a side of the split."""
        return len({item.identity for item in self._sides[split]})

    def start(self, item: TaskItem) -> SkyRLEpisode:
        """Begin an episode.

        Raises:
            ValueError: the environment changes its prompt.
        """
        row = json.loads(item.truth)
        world = self._world(row)
        asked, _ = world.init(row["prompt"])
        if [(one["role"], one["content"]) for one in asked] != [(one.role, one.content) for one in item.messages]:
            raise ValueError("it changes its prompt, which the policy has not seen")
        return SkyRLEpisode(world)

    def _world(self, row: Row) -> Any:
        return self._gym.make(self._id, env_config=self._config, extras=row)


class SkyRLEpisode:
    """An episode of one task."""

    def __init__(self, world: Any) -> None:
        self._world, self._reward, self._turns, self._done = world, 0.0, 0, False

    def respond(self, messages: Sequence[Message]) -> Answer:
        said = self._world.step(text_of(messages[-1]))
        self._reward, self._turns, self._done = self._reward + float(said["reward"]), self._turns + 1, bool(said["done"])
        return Answer([Message(one["role"], one["content"]) for one in said["observations"]], float(said["reward"]), self._done)

    def finish(self, reason: Reason) -> Verdict:
        return Verdict({"reward": self._reward, "turns": self._turns, "done": self._done})

    def close(self) -> None:
        self._world.close()


def _rows(file: Path) -> Iterator[JsonObject]:
    """Yield the tasks of a file.

    Raises:
        NotFoundError: there is no such file.
        DataError: it is empty, or a line is no task.
    """
    if not file.is_file():
        raise NotFoundError("there is no such file of tasks", str(file), f"set {_FILE}")
    lines = [(number, line) for number, line in enumerate(file.read_bytes().splitlines(), 1) if line.strip()]
    if not lines:
        raise DataError("it is empty", str(file), "write one task a line")
    for number, line in lines:
        row = _task(line)
        if row is None:
            raise DataError(
                "no task with a prompt", f"{file}:{number}", 'write {"prompt": [{"role": "user", "content": "..."}], ...}'
            )
        yield row


def _task(line: bytes) -> JsonObject | None:
    try:
        row = json.loads(line)
        good = row["prompt"] and all(one["role"] in _ROLES and isinstance(one["content"], str) for one in row["prompt"])
    except (ValueError, TypeError, KeyError):
        return None
    return row if good else None


def _prompt(row: Row) -> list[Message]:
    return [Message(one["role"], one["content"]) for one in row["prompt"]]


def _identity(row: Row) -> str:
    return row["prompt"][-1]["content"].strip()
