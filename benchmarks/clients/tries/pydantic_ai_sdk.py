"""pydantic-ai: its models of chat completions, responses and Anthropic messages."""

import asyncio
from typing import Literal

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from tried import KEY, LIMIT, MODEL, ORDER, ROOT, URL, Asked, check_parts, check_sky, run


class Sky(BaseModel):
    sky: Literal["dry", "wet"]


def models():
    """Models with clients of their own: a client belongs to one event loop."""
    openai = OpenAIProvider(base_url=URL, api_key=KEY)
    yield OpenAIChatModel(MODEL, provider=openai)
    yield OpenAIResponsesModel(MODEL, provider=openai)
    yield AnthropicModel(MODEL, provider=AnthropicProvider(base_url=ROOT, api_key=KEY))


def of_each(one):
    async def all_of_them():
        for model in models():
            await one(model)

    return lambda: asyncio.run(all_of_them())


def agent(model, **more):
    return Agent(model, model_settings={"max_tokens": LIMIT, "parallel_tool_calls": False}, retries=0, **more)


async def chat(model):
    assert (await agent(model).run("Say hello.")).output


async def stream(model):
    async with agent(model).run_stream("Say hello.") as result:
        check_parts([part async for part in result.stream_text(delta=True, debounce_by=None)])


async def tools(model):
    asked, own = Asked(), agent(model)

    @own.tool_plain
    def weather(city: Literal["Oslo", "Bergen"]) -> str:
        """The weather."""
        return asked.weather(city)

    asked.check((await own.run(ORDER)).output)


async def forced(model):
    check_sky((await agent(model, output_type=ToolOutput(Sky)).run("Say hello.")).output.model_dump())


async def structured(model):
    if isinstance(model, AnthropicModel):  # its profile of an unknown model has none
        return
    check_sky((await agent(model, output_type=NativeOutput(Sky)).run("Say hello.")).output.model_dump())


run({one.__name__: of_each(one) for one in (chat, stream, tools, forced, structured)})
