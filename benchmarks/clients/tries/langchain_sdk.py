"""LangChain: langchain-openai."""

from typing import Literal

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from tried import KEY, LIMIT, MODEL, ORDER, URL, Asked, check_arguments, check_parts, check_sky, run

model = ChatOpenAI(model=MODEL, base_url=URL, api_key=KEY, max_retries=0, max_tokens=LIMIT, timeout=120)
asked = Asked()


class Sky(BaseModel):
    """The sky."""

    sky: Literal["dry", "wet"]


@tool
def weather(city: Literal["Oslo", "Bergen"]) -> str:
    """The weather."""
    return asked.weather(city)


def chat():
    assert model.invoke("Say hello.").content


def stream():
    check_parts([part.content for part in model.stream("Say hello.")])


def tools():
    messages, bound = [HumanMessage(ORDER)], model.bind_tools([weather])
    while (said := bound.invoke(messages)).tool_calls:
        results = [ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]) for call in said.tool_calls]
        messages += [said, *results]
    asked.check(said.content)


def forced():
    for choice in ("any", "weather"):
        [call] = model.bind_tools([weather], tool_choice=choice, parallel_tool_calls=False).invoke("Say hello.").tool_calls
        check_arguments(call["args"])


def structured():
    for method in ("json_schema", "function_calling"):
        check_sky(model.with_structured_output(Sky, method=method).invoke("Say hello.").model_dump())


run({"chat": chat, "stream": stream, "tools": tools, "forced": forced, "structured": structured})
