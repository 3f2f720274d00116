"""What the prompts of environments begin with, as requests to other processes hold it: these need no environment then."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.environment import Played
from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.play.environments.several import World, open_environments


class Opening(BaseModel):
    """What every prompt of an environment begins with; `label`: the environment's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str
    tools: list[JsonObject]
    preamble: list[JsonObject]

    def specs(self) -> list[ToolSpec]:
        return [ToolSpec(**tool) for tool in self.tools]

    def messages(self) -> list[Message]:
        return [Message.from_dict(message) for message in self.preamble]


def openings(played: Played) -> tuple[Opening, ...]:
    """Return the openings of environments, in their order. Raises as `open_environments`."""
    with open_environments(played) as opened:
        return tuple(_opening(world) for world in opened)


def _opening(world: World) -> Opening:
    tools = [{"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in world.tools()]
    return Opening(label=world.name, tools=tools, preamble=[message.as_dict() for message in world.preamble()])


def opening_for(known: Sequence[Opening], label: str | None) -> Opening:
    """Return the opening of a row's environment: that of its label; for what was recorded elsewhere, the first one."""
    return next((opening for opening in known if opening.label == label), known[0])
