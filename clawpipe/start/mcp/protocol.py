"""Serve functions as tools over MCP. Whatever a client sends, a tool answers with one JSON object: its result, or what is wrong."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, ToolAnnotations
from mcp_types import Tool as ListedTool
from pydantic import BaseModel, ValidationError

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.system.machine import as_clawpipe_error
from clawpipe.errors import ClawpipeError, ConfigError, NotFoundError

_LOG = logging.getLogger(__name__)
_AT_ONCE = 4  # calls that run at the same time; others wait
BEAT = 5.0  # seconds between two words on the progress of a call


class RefusedError(Exception):
    """An error with facts beside it that help a model to go on, such as the names that there are."""

    def __init__(self, error: ClawpipeError, **facts: Any) -> None:
        self.error, self.facts = error, facts
        super().__init__(str(error))


@dataclass(frozen=True)
class Tool:
    """A tool as a model sees it.

    Attributes:
        description: written for a model: what it does, and when to use it.
        arguments: their types; a call with others is refused.
        answer: called with the arguments.
        reads: whether a call changes nothing.
    """

    name: str
    description: str
    arguments: type[BaseModel]
    answer: Callable[[Any], JsonObject]
    reads: bool = False


def call(tools: Sequence[Tool], name: str, arguments: JsonObject) -> tuple[JsonObject, bool]:
    """Call a tool; return its answer, and whether it failed. An answer that failed has `error`, and `fix` where something helps."""
    try:
        tool = next((one for one in tools if one.name == name), None)
        if tool is None:
            raise NotFoundError(f"no tool {name!r}", fix="the tools are " + ", ".join(one.name for one in tools))
        return tool.answer(_parsed(tool, arguments)), False
    except RefusedError as refusal:
        return _told(refusal.error) | refusal.facts, True
    except Exception as error:
        known = as_clawpipe_error(error)
        if known is None:
            _LOG.exception("the tool %s failed", name)  # into the server's log, and not to the client
            known = ClawpipeError(f"the tool failed unexpectedly: {type(error).__name__}", fix="the server's log says where")
        return _told(known), True


def server_of(tools: Sequence[Tool], version: str, instructions: str) -> Server[Any]:
    """Return an MCP server of these tools. They run in threads, so that a slow one does not keep the others waiting."""
    threads = anyio.CapacityLimiter(_AT_ONCE)

    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(tools=[_listed(tool) for tool in tools])

    async def call_tool(context: ServerRequestContext[Any, Any], asked: CallToolRequestParams) -> CallToolResult:
        work = partial(call, tools, asked.name, asked.arguments or {})
        answer, failed = JsonObject(), True
        async with anyio.create_task_group() as group:
            group.start_soon(_say_that_it_works, context, asked.name)
            answer, failed = await anyio.to_thread.run_sync(work, limiter=threads)
            group.cancel_scope.cancel()
        text = json.dumps(answer, indent=2, ensure_ascii=False, default=str)
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)

    return Server("clawpipe", version=version, instructions=instructions, on_list_tools=list_tools, on_call_tool=call_tool)


async def _say_that_it_works(context: ServerRequestContext[Any, Any], tool: str) -> None:
    """Tell a client that asked for progress that its call is not lost; many clients begin their timeout anew with each word."""
    for beat in itertools.count(1):
        await anyio.sleep(BEAT)
        await context.session.report_progress(beat, message=f"{tool} has worked for {beat * BEAT:.0f} s")


def _listed(tool: Tool) -> ListedTool:
    schema = tool.arguments.model_json_schema()
    schema.pop("title", None)
    notes = ToolAnnotations(read_only_hint=tool.reads, destructive_hint=False, open_world_hint=False)
    return ListedTool(name=tool.name, description=tool.description, input_schema=schema, annotations=notes)


def _parsed(tool: Tool, arguments: JsonObject) -> BaseModel:
    try:
        return tool.arguments.model_validate(arguments, strict=True)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        known = ", ".join(tool.arguments.model_fields) or "none"
        raise ConfigError(first["msg"].removeprefix("Value error, "), where, f"the arguments of {tool.name} are: {known}") from None


def _told(error: ClawpipeError) -> JsonObject:
    """Return an error as an object: one line, where, and what helps."""
    told = error.as_dict()
    line = " ".join(str(told["what"]).split())
    return {"error": line, **{name: told[name] for name in ("where", "fix") if told[name]}, "exit_code": told["exit_code"]}
