"""OpenAI Agents SDK: its default, responses, and chat completions."""

import asyncio
from typing import Literal

import agents
import openai
from pydantic import BaseModel
from tried import LIMIT, MODEL, ORDER, Asked, check_arguments, check_parts, check_sky, run

agents.set_tracing_disabled(True)
KINDS = (agents.OpenAIResponsesModel, agents.OpenAIChatCompletionsModel)


class Sky(BaseModel):
    sky: Literal["dry", "wet"]


def agent(model, asked=None, kind=None, **more):
    def weather(city: Literal["Oslo", "Bergen"]) -> str:
        """The weather."""
        return asked.weather(city)

    offered = [agents.function_tool(weather)] if asked else []
    settings = agents.ModelSettings(max_tokens=LIMIT, **more)
    return agents.Agent(name="a", instructions="Be short.", model=model, tools=offered, output_type=kind, model_settings=settings)


def of_each(one):
    async def all_of_them():
        async with openai.AsyncOpenAI(max_retries=0, timeout=120) as client:
            for kind in KINDS:
                await one(kind(model=MODEL, openai_client=client))

    return lambda: asyncio.run(all_of_them())


async def chat(model):
    assert (await agents.Runner.run(agent(model), "Say hello.")).final_output


async def stream(model):
    streamed = agents.Runner.run_streamed(agent(model), "Say hello.")
    kind = "response.output_text.delta"
    raw = [event.data async for event in streamed.stream_events() if event.type == "raw_response_event"]
    check_parts([one.delta for one in raw if one.type == kind])


async def tools(model):
    asked = Asked()
    asked.check((await agents.Runner.run(agent(model, asked), ORDER)).final_output)


async def forced(model):
    asked = Asked()
    await agents.Runner.run(agent(model, asked, tool_choice="required", parallel_tool_calls=False), "Say hello.")
    check_arguments({"city": asked.cities[0]})


async def structured(model):
    found = (await agents.Runner.run(agent(model, kind=Sky), "Say hello.")).final_output
    check_sky(found.model_dump())


run({one.__name__: of_each(one) for one in (chat, stream, tools, forced, structured)})
