"""`openenv:URL`: an environment that an OpenEnv server holds, played by the library's client."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message
from clawpipe.errors import BusyError, ConfigError
from clawpipe.play.environments.base import Answer, Reason, TaskItem, Verdict
from clawpipe.play.environments.libraries.common import LibraryEnvironment, Tally, first, imported, numbers, text_of

_TO_ANSWER = 30.0  # seconds
_REFUSED = "VALIDATION_ERROR"  # what the server says of an action that is none of its


class OpenEnv(LibraryEnvironment):
    """An environment behind a URL: each episode is a session of the server, begun from a seed.

    Args:
        word: the server's URL.
        action: field of an action that takes the policy's reply; "": the only one, or the reply is a JSON object.
        observation: field of an observation that the policy sees; "": the only one as text, or all of them as JSON.
        system: system message of every episode; "": none.
        reward: of an episode, all rewards of its steps: {"lowest": 0, "highest": 1, "success": 1}.
    """

    library = name = "openenv"

    def __init__(
        self,
        word: str,
        action: str = "",
        observation: str = "",
        system: str = "",
        reward: Mapping[str, float] = {},
    ) -> None:
        super().__init__(word, reward, system)
        self._core = imported(self.library, "openenv.core")
        self._url, self._shown = word, observation
        self._actions = Actions(_schema(word), action)

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return items, each a seed with its first observation. Raises as `Environment.items`."""
        seeds = first(numbers(split, seed), count, self.name)
        texts = asyncio.run(self._begun(seeds))
        items = [self.item(str(seed), [Message("user", text)], {"seed": seed}) for seed, text in zip(seeds, texts, strict=True)]
        return [self.placed(item, split, place) for place, item in enumerate(items)]

    async def start(self, item: TaskItem) -> OpenEnvEpisode:
        """Begin an episode from the item's seed.

        Raises:
            ValueError: the seed gives another first observation than when the item was made.
        """
        client = await self._connected()
        text = observed((await client.reset(seed=json.loads(item.truth)["seed"])).observation, self._shown)
        if text != item.messages[-1].content:
            await client.close()
            raise ValueError(f"{self._url} does not begin alike with one seed")
        return OpenEnvEpisode(client, self._actions, self._shown, Tally(self._scale.lowest))

    async def _begun(self, seeds: Sequence[int]) -> list[str]:
        client = await self._connected()
        try:
            return [observed((await client.reset(seed=seed)).observation, self._shown) for seed in seeds]
        finally:
            await client.close()

    async def _connected(self) -> Any:
        return await self._core.GenericEnvClient(self._url).connect()


class OpenEnvEpisode:
    """A session of the server."""

    def __init__(self, client: Any, actions: Actions, shown: str, tally: Tally) -> None:
        self._client, self._actions, self._shown, self._tally = client, actions, shown, tally

    async def respond(self, messages: Sequence[Message]) -> Answer:
        """Take the policy's action; one that the server does not know is answered, and changes nothing."""
        try:
            said = await self._client.step(self._actions.read(text_of(messages[-1])))
        except ValueError as error:
            return self._tally.refused(error)
        except RuntimeError as error:
            if _REFUSED not in str(error):
                raise
            return self._tally.refused(ValueError(f"that is no action; {self._actions.wanted}"))  # the client drops the details
        return self._tally.step(observed(said.observation, self._shown), float(said.reward or 0.0), bool(said.done))

    async def finish(self, reason: Reason) -> Verdict:
        return self._tally.verdict()

    async def close(self) -> None:
        await self._client.close()


class Actions:
    """Reads an action from a reply.

    Raises:
        ConfigError: actions have no such field.
    """

    def __init__(self, schema: JsonObject, field: str) -> None:
        fields = {name: shape for name, shape in schema.get("properties", {}).items() if name != "metadata"}
        if field and field not in fields:
            raise ConfigError(f"its actions have no {field!r}", "environment.options.action", f"they have {', '.join(fields)}")
        self._field = field or (next(iter(fields)) if len(fields) == 1 else "")
        self._is_text = bool(self._field) and fields[self._field].get("type") == "string"
        self.wanted = f"one fits {json.dumps(fields[self._field] if self._field else fields)}"

    def read(self, reply: str) -> JsonObject:
        """Return the action of a reply.

        Raises:
            ValueError: it is none.
        """
        if self._is_text:
            return {self._field: reply}
        try:
            value = json.loads(reply)
        except ValueError:
            raise ValueError("answer with JSON") from None
        if self._field:
            return {self._field: value}
        if not isinstance(value, dict):
            raise ValueError("answer with a JSON object")
        return value


def observed(observation: JsonObject, shown: str) -> str:
    """Return what the policy sees of an observation.

    Raises:
        ValueError: it has no such field.
    """
    if shown and shown not in observation:
        raise ValueError(f"observations have no {shown!r}: they have {', '.join(observation)}")
    value = observation[shown] if shown else next(iter(observation.values())) if len(observation) == 1 else observation
    return value if isinstance(value, str) else json.dumps(value)


def _schema(url: str) -> JsonObject:
    """Ask the server what its actions are.

    Raises:
        BusyError: nothing answers.
        ConfigError: it is no server of environments.
    """
    place = url.replace("ws://", "http://").replace("wss://", "https://").rstrip("/")
    try:
        with urllib.request.urlopen(f"{place}/schema", timeout=_TO_ANSWER) as answer:
            return json.load(answer)["action"]
    except urllib.error.HTTPError as error:
        raise ConfigError(f"it answers /schema with {error.code}", url, "name an OpenEnv server") from None
    except (OSError, ValueError) as error:
        known = isinstance(error, ConnectionError | TimeoutError | urllib.error.URLError)
        what = f"no environment answers: {getattr(error, 'reason', error)}"
        raise (BusyError if known else ConfigError)(what, url, "start the server, and try again") from None
    except (KeyError, TypeError):
        raise ConfigError("its /schema has no action", url, "name an OpenEnv server") from None
