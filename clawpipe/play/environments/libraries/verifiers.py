"""`verifiers:ID`: tasks of a taskset of verifiers that are answered by one reply, which the library scores.

A taskset whose tasks have tools, a user who answers back, or rewards that need a machine is played by a program of the library's,
which asks an endpoint: that is the environment `agent`, not this one.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from clawpipe.core.conversation.messages import Message
from clawpipe.errors import ConfigError, DataError
from clawpipe.play.environments.base import Outcome, TaskItem, Verdict
from clawpipe.play.environments.libraries.common import LibraryEnvironment, chosen, imported, sided
from clawpipe.play.environments.single_turn import OneReply


class Verifiers(LibraryEnvironment):
    """A taskset of verifiers: one prompt, one reply, and the library's own rewards.

    Args:
        word: the taskset's id; its package is installed beside verifiers.
        config: fields of the taskset's configuration.
        most: tasks that are read of it, which may be without an end.
        share: of the tasks that are held out, in (0, 1).
        reward: the weighted sum of a task's rewards: {"lowest": 0, "highest": 1, "success": 1}.
    """

    library = name = "verifiers"

    def __init__(
        self,
        word: str,
        config: Mapping[str, Any] = {},
        most: int = 1000,
        share: float = 0.3,
        reward: Mapping[str, float] = {},
    ) -> None:
        super().__init__(word, reward, "")
        self._library = imported(self.library, "verifiers.v1")
        self._tasks = list(islice(iter(self._taskset(word, dict(config))), most))
        if not self._tasks:
            raise DataError("it has no task", word, "see its configuration")
        for task in self._tasks:
            _require_one_reply(task, self._library.Task, word)
        self._sides = sided(map(self._item, range(len(self._tasks))), share)

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return tasks of a side of the split, in an order that the seed decides. Raises as `Environment.items`."""
        return [self.placed(item, split, place) for place, item in enumerate(chosen(self._sides, split, count, seed, self.name))]

    def distinct_items(self, split: str) -> int:
        """Return the number of tasks on a side of the split."""
        return len({item.identity for item in self._sides[split]})

    def start(self, item: TaskItem) -> OneReply:
        return OneReply()

    def verify(self, item: TaskItem, messages: Sequence[Message], verdict: Verdict | None = None) -> Outcome:
        """Return the outcome of the library's rewards.

        Raises:
            ValueError: nothing was answered, or the taskset has another task in its place now.
        """
        if messages[-1].role != "assistant":
            raise ValueError("no answer")
        truth = json.loads(item.truth)
        task = self._tasks[truth["place"]] if truth["place"] < len(self._tasks) else None
        if task is None or task.key != truth["key"]:
            raise ValueError("the taskset has another task in its place")
        trace = self._trace(task, messages)
        asyncio.run(task.score(trace))
        rewards = {name: reward.value for name, reward in trace.rewards.items() if reward is not None}
        return self._scale.outcome(trace.reward, Verdict({"reward": trace.reward, "rewards": rewards}))

    def _taskset(self, word: str, config: dict[str, Any]) -> Any:
        loaders = imported(self.library, "verifiers.v1.utils.loaders")
        try:
            taskset = loaders.load_taskset(loaders.taskset_config_type(word).model_validate({"id": word} | config))
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise ConfigError(
                " ".join(str(error).split()), word, "name an installed taskset, and fields of its configuration"
            ) from None
        if taskset.toolsets(taskset.config):
            raise ConfigError("its tasks have tools", word, "play it with the environment agent")
        return taskset

    def _item(self, place: int) -> TaskItem:
        task = self._tasks[place]
        return self.item(task.data.prompt_text, list(_prompt(task.data)), {"place": place, "key": task.key})

    def _trace(self, task: Any, messages: Sequence[Message]) -> Any:
        """Return a reply as the library would have recorded it."""
        v1 = self._library
        kinds = {"system": v1.SystemMessage, "user": v1.UserMessage, "assistant": v1.AssistantMessage}
        trace = v1.Trace(
            task=v1.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
            agent=v1.AgentInfo(config=v1.AgentConfig()),
            is_completed=True,
            ok=True,
        )
        for place, message in enumerate(messages):
            said = kinds[message.role](content=message.content)
            parent = place - 1 if place else None
            trace.nodes.append(v1.MessageNode(parent=parent, message=said, sampled=place == len(messages) - 1))
        return trace


def _prompt(data: Any) -> Iterator[Message]:
    if data.system_prompt:
        yield Message("system", data.system_prompt)
    if isinstance(data.prompt, str):
        yield Message("user", data.prompt)
    else:
        yield from (Message(one.role, one.content) for one in data.prompt or [])


def _require_one_reply(task: Any, base: Any, word: str) -> None:
    """Check that one reply to a prompt is all that a task is scored by.

    Raises:
        ConfigError: it has no prompt of texts, or it has tools, or a hook, a reward or a judge of it needs a machine.
    """
    prompt = task.data.prompt
    texts = prompt if isinstance(prompt, str) else prompt and all(isinstance(one.content, str) for one in prompt)
    needs = [f"reward {fn.__name__}" for fn in task.hooks("reward") if _needs_machine(fn)]
    needs += [f"judge {judge.reward_name}" for judge in task.plugged_judges() if _needs_machine(judge.score)]
    needs += [name for name in ("setup", "finalize") if getattr(type(task), name) is not getattr(base, name)]
    what = (
        "a task has no prompt of texts"
        if not texts
        else "its tasks have tools"
        if type(task).toolsets(task.config)
        else f"its {needs[0]} needs a machine"
        if needs
        else ""
    )
    if what:
        raise ConfigError(what, word, "play it with the environment agent")


def _needs_machine(function: Any) -> bool:
    parameter = inspect.signature(function).parameters.get("runtime")
    return parameter is not None and parameter.default is inspect.Parameter.empty
