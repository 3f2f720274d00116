"""smolagents: its model class, and its agent of tool calls where the engine calls tools."""

from smolagents import ChatMessage, OpenAIModel, Tool, ToolCallingAgent
from tried import CALLS, KEY, LIMIT, MODEL, ORDER, SKY, URL, Asked, check_arguments, check_parts, check_sky, run

model = OpenAIModel(MODEL, api_base=URL, api_key=KEY, max_tokens=LIMIT, client_kwargs={"max_retries": 0, "timeout": 120})
asked = Asked()


class Weather(Tool):
    name = "weather"
    description = "The weather."
    inputs = {"city": {"type": "string", "enum": ["Oslo", "Bergen"], "description": "Where."}}  # noqa: RUF012
    output_type = "string"

    def forward(self, city: str) -> str:
        return asked.weather(city)


def said(text="Say hello."):
    return [ChatMessage(role="user", content=[{"type": "text", "text": text}])]


def chat():
    assert model.generate(said()).content


def stream():
    check_parts([part.content or "" for part in model.generate_stream(said())])


def tools():
    if not CALLS:
        assert model.generate(said(), tools_to_call_from=[Weather()], tool_choice="auto").content is not None
        return
    agent = ToolCallingAgent(tools=[Weather()], model=model, max_steps=3, verbosity_level=0)
    asked.check(agent.run(ORDER))


def forced():
    [call] = model.generate(said(), tools_to_call_from=[Weather()], parallel_tool_calls=False).tool_calls
    check_arguments(call.function.arguments)


def structured():
    form = {"type": "json_schema", "json_schema": {"name": "sky", "schema": SKY, "strict": True}}
    check_sky(model.generate(said(), response_format=form).content)


run({"chat": chat, "stream": stream, "tools": tools, "forced": forced, "structured": structured})
