"""`atropos:FILE.py[:Class]`: an environment of Atropos, a subclass of its BaseEnv, which asks the model by itself.

The library scores groups of answers. The policy's is one of two; the other is always `COMPANION`, which knows nothing. A group that
the environment drops, as it does with answers that are worth the same, leaves the policy's answer with the lowest reward.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count as count_up
from typing import Any

from clawpipe.core.basics.json_types import JsonObject, Options
from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.core.user_code.extensions import import_file
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.libraries.asking import Asked, AskingEpisode, Request, first_request, read, written
from clawpipe.play.environments.libraries.byte_tokenizer import ByteTokenizer
from clawpipe.play.environments.libraries.common import LibraryEnvironment, first, imported
from clawpipe.play.environments.libraries.naming import file_in
from clawpipe.play.environments.split import heldout, is_heldout_split, stable_hash

COMPANION = "I do not know what the answer to this question is."
_REPEATS = 200  # items in a row that were known, after which there are taken to be no more
_WORD = "write atropos:path/to/file.py:ClassName"


class Atropos(LibraryEnvironment):
    """An environment of Atropos: its own get_next_item, collect_trajectories and scores, with the policy in place of its server.

    Args:
        word: FILE.py, or FILE.py:Class where it defines several.
        config: fields of the environment's configuration.
        tokenizer: directory or name of the tokenizer that counts tokens; "": bytes are counted.
        share: of the items that are held out, in (0, 1).
        reward: {"lowest": 0, "highest": 1, "success": 1}; many environments give -1 to what is wrong.
    """

    library = name = "atropos"

    def __init__(
        self,
        word: str,
        config: Mapping[str, Any] = {},
        tokenizer: str = "",
        share: float = 0.3,
        reward: Mapping[str, float] = {},
    ) -> None:
        super().__init__(word, reward, "")
        self._base = imported(self.library, "atroposlib.envs.base")
        logging.getLogger("atroposlib").setLevel(logging.WARNING)
        self._share, self._own = share, list[Any]()
        self._env = self._made(_class_in(word, self._base.BaseEnv), dict(config), tokenizer)
        _seed("setup")
        asyncio.run(self._env.setup())
        self._tools = self._offered()

    def tools(self) -> list[ToolSpec]:
        """Return the tools that the environment offers with its first question."""
        return self._tools

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return the environment's own items on a side of the split, in its order whatever the seed.

        Raises:
            DataError: there are fewer.
        """
        found = first(self._found(is_heldout_split(split)), count, self.name)
        return [self.placed(item, split, place) for place, item in enumerate(found)]

    async def start(self, item: TaskItem) -> AskingEpisode[Any]:
        """Begin an episode of the item that the environment gives after as many others as when it was made. Raises as `begin`."""
        number = json.loads(item.truth)["number"]
        own = await self._nth(number)
        episode = AskingEpisode(lambda asked: self._collected(own, number, asked), item.messages, self._judged)
        return await episode.begin()

    def _made(self, kind: type, config: Options, tokenizer: str) -> Any:
        """Make the library's environment as it makes itself, without its servers."""
        given, servers = kind.config_init()
        fixed = {"group_size": 2, "use_wandb": False, "include_messages": True, "ensure_scores_are_not_same": False}
        fixed |= {"data_path_to_save_groups": None} | ({"tokenizer_name": tokenizer} if tokenizer else {})
        if unknown := config.keys() - type(given).model_fields.keys():
            raise ConfigError(f"its configuration has no {min(unknown)}", "environment.options.config", "see its config_init")
        if not tokenizer:
            vars(self._base)["AutoTokenizer"] = ByteTokenizer
        return kind(type(given).model_validate(given.model_dump() | config | fixed), servers, testing=True)

    def _found(self, wanted: bool) -> Iterator[TaskItem]:
        seen, repeats = set[str](), 0
        for number in count_up():
            own = asyncio.run(self._nth(number))
            if own is None:
                return
            item = self._item(own, number)
            repeats = repeats + 1 if item.identity in seen else 0
            if repeats == _REPEATS:
                return
            if item.identity not in seen and heldout(item.identity, self._share) == wanted:
                yield item
            seen.add(item.identity)

    async def _nth(self, number: int) -> Any:
        """Return the item that the environment gives after `number` others: it may only be asked for the next one."""
        while len(self._own) <= number:
            _seed(f"next/{len(self._own)}")
            self._own.append(await self._env.get_next_item())
        return self._own[number]

    def _offered(self) -> list[ToolSpec]:
        with suppress(Exception):  # whatever its code raises is told when its items are made
            return _specs(self._first_request(asyncio.run(self._nth(0)), 0))
        return []

    def _first_request(self, own: Any, number: int) -> Request:
        return asyncio.run(first_request(lambda asked: self._collected(own, number, asked)))

    def _item(self, own: Any, number: int) -> TaskItem:
        request = self._first_request(own, number)
        if _specs(request) != self._tools:
            raise ValueError(f"question {number} comes with other tools than the first one")
        messages = read(request.messages)
        return self.item("\n".join(message.content for message in messages), messages, {"number": number})

    async def _collected(self, own: Any, number: int, asked: Asked) -> Any:
        """Return what the environment collects of an item: one scored answer where it can do that, else a group of two."""
        _seed(f"collect/{number}")
        self._env.server = _Server(asked, self._env.tokenizer)
        single = type(self._env).collect_trajectory is not self._base.BaseEnv.collect_trajectory
        collected, _ = await (self._env.collect_trajectory(own) if single else self._env.collect_trajectories(own))
        return collected

    def _judged(self, collected: Any, messages: Sequence[Message]) -> JsonObject:
        """Return the reward of the policy's answer, the lowest where the environment has dropped it."""
        if isinstance(collected, list):
            collected = next(filter(None, collected), None)
        scores = collected["scores"] if collected else []
        scores = scores if isinstance(scores, list) else [scores]
        place = self._place(collected, len(scores))
        if place is None:
            return {"reward": self._scale.lowest, "kept": False}
        return {"reward": float(scores[place]), "kept": True}

    def _place(self, collected: Any, count: int) -> int | None:
        """Return the place of the policy's answer among those that are scored: environments shuffle and drop them."""
        if count == 1 and not isinstance(collected["scores"], list):
            return 0
        return next((place for place in range(count) if COMPANION not in self._text(collected, place)), None)

    def _text(self, collected: Any, place: int) -> str:
        messages = collected.get("messages")
        if messages and messages[place]:
            return "\n".join(str(message["content"]) for message in messages[place])
        return self._env.tokenizer.decode(collected["tokens"][place])


class _Server:
    """What an environment takes for its server: the policy answers one conversation, the companion all others."""

    def __init__(self, asked: Asked, tokenizer: Any) -> None:
        self._asked, self._tokenizer = asked, tokenizer
        self._history: list[JsonObject] | None = None
        self._answering = False

    async def chat_completion(self, messages: list[JsonObject], n: int = 1, tools: Any = None, **_: Any) -> Any:
        said = await self._answered(messages, tools)
        choices = [said, *({"role": "assistant", "content": COMPANION} for _ in range(n - 1))]
        return _completion("chat.completion", [{"message": choice} for choice in choices])

    async def completion(self, prompt: str, n: int = 1, **_: Any) -> Any:
        messages = self._tokenizer.messages_of(prompt) if isinstance(self._tokenizer, ByteTokenizer) else None
        said = await self._answered(messages or [{"role": "user", "content": prompt}], None)
        return _completion("text_completion", [{"text": text} for text in (said["content"], *[COMPANION] * (n - 1))])

    @asynccontextmanager
    async def managed_server(self, tokenizer: Any = None, **_: Any) -> AsyncIterator[Any]:
        """Yield the library's own keeper of conversations, which keeps placeholders for tokens."""
        yield imported("atropos", "atroposlib.envs.server_handling.managed_server").DummyManagedServer(self)

    async def _answered(self, messages: list[JsonObject], tools: Any) -> JsonObject:
        known = [message["content"] for message in self._history or []]
        if self._answering or [message["content"] for message in messages[: len(known)]] != known:
            return {"role": "assistant", "content": COMPANION}
        self._answering = True
        said = written(await self._asked.ask(messages, tools or []), tools)
        self._history, self._answering = [*messages, said], False
        return said


def _specs(request: Request) -> list[ToolSpec]:
    functions = [tool["function"] for tool in request.tools]
    return [ToolSpec(one["name"], one.get("description") or "", one.get("parameters") or {}) for one in functions]


def _completion(kind: str, choices: list[JsonObject]) -> Any:
    types = imported("atropos", "openai.types")
    shape = types.Completion if kind == "text_completion" else imported("atropos", "openai.types.chat").ChatCompletion
    rows = [{"index": place, "finish_reason": "stop", "logprobs": None} | choice for place, choice in enumerate(choices)]
    return shape.model_validate({"id": "policy", "created": 0, "model": "policy", "object": kind, "choices": rows})


def _class_in(word: str, base: type) -> type:
    """Return the environment's class of a file.

    Raises:
        NotFoundError: there is no such file or class.
        ConfigError: it does not import, or defines none or several.
    """
    file, wanted = file_in(word), word.partition(".py:")[2]
    if file is None or not file.is_file():
        raise NotFoundError("there is no such file", str(file or word), _WORD)
    module = import_file(file, _WORD)
    own = {name: kind for name, kind in vars(module).items() if isinstance(kind, type) and kind.__module__ == module.__name__}
    kinds = {name: kind for name, kind in own.items() if issubclass(kind, base)}
    if wanted and wanted not in kinds:
        raise NotFoundError(f"no environment {wanted!r} in it", str(file), f"it defines {', '.join(kinds) or 'none'}")
    if not wanted and len(kinds) != 1:
        raise ConfigError(f"it defines {', '.join(kinds) or 'no subclass of BaseEnv'}", str(file), _WORD)
    return kinds[wanted] if wanted else next(iter(kinds.values()))


def _seed(purpose: str) -> None:
    """Seed whatever an environment may draw from."""
    random.seed(purpose)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(stable_hash(purpose) % 2**32)
