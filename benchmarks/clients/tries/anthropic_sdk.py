"""anthropic: messages."""

import anthropic
from tried import KEY, LIMIT, MODEL, ORDER, PARAMETERS, ROOT, SKY, Asked, check_arguments, check_parts, check_sky, run

client = anthropic.Anthropic(base_url=ROOT, api_key=KEY, max_retries=0, timeout=120)
TOOL = {"name": "weather", "description": "The weather.", "input_schema": PARAMETERS}


def given(text="Say hello.", **more):
    return {"model": MODEL, "max_tokens": LIMIT, "messages": [{"role": "user", "content": text}]} | more


def ask(text="Say hello.", **more):
    return client.messages.create(**given(text, **more))


def chat():
    assert ask(system="Be short.").content[0].text


def stream():
    with client.messages.stream(**given()) as events:
        check_parts(list(events.text_stream))
        assert events.get_final_message().stop_reason


def tools():
    asked, messages = Asked(), [{"role": "user", "content": ORDER}]
    while (said := ask(messages=messages, tools=[TOOL])).stop_reason == "tool_use":
        calls = [block for block in said.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": asked.weather(**call.input)} for call in calls]
        messages += [{"role": "assistant", "content": said.content}, {"role": "user", "content": results}]
    asked.check(said.content[0].text)


def forced():
    for choice in ({"type": "any"}, {"type": "tool", "name": "weather"}):
        said = ask(tools=[TOOL], tool_choice=choice | {"disable_parallel_tool_use": True})
        check_arguments(next(block.input for block in said.content if block.type == "tool_use"))


def structured():
    said = ask(output_config={"format": {"type": "json_schema", "schema": SKY}})
    check_sky(said.content[0].text)


run({"chat": chat, "stream": stream, "tools": tools, "forced": forced, "structured": structured})
