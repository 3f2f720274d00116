"""openai: chat completions and responses."""

import json

import openai
from tried import LIMIT, MODEL, ORDER, PARAMETERS, SKY, Asked, check_arguments, check_parts, check_sky, run

client = openai.OpenAI(max_retries=0, timeout=120)
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather.", "parameters": PARAMETERS, "strict": True},
}
FLAT = {"type": "function", "name": "weather", "description": "The weather.", "parameters": PARAMETERS, "strict": True}


def ask(text="Say hello.", **more):
    given = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_completion_tokens": LIMIT} | more
    return client.chat.completions.create(**given)


def respond(given="Say hello.", **more):
    return client.responses.create(model=MODEL, input=given, max_output_tokens=LIMIT, **more)


def chat():
    assert ask().choices[0].message.content
    assert respond().output_text


def stream():
    check_parts([chunk.choices[0].delta.content for chunk in ask(stream=True) if chunk.choices])
    with client.responses.stream(model=MODEL, input="Say hello.", max_output_tokens=LIMIT) as events:
        check_parts([event.delta for event in events if event.type == "response.output_text.delta"])


def tools():
    asked, messages = Asked(), [{"role": "user", "content": ORDER}]
    while calls := (said := ask(messages=messages, tools=[TOOL]).choices[0].message).tool_calls:
        messages.append(said)
        for call in calls:
            content = asked.weather(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
    asked.check(said.content)
    first = respond(ORDER, tools=[FLAT])
    results = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "dry"}
        for item in first.output
        if item.type == "function_call"
    ]
    assert respond(results or "And now?", previous_response_id=first.id, tools=[FLAT]).output_text


def forced():
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        [call] = ask(tools=[TOOL], tool_choice=choice, parallel_tool_calls=False).choices[0].message.tool_calls
        check_arguments(call.function.arguments)
    output = respond(tools=[FLAT], tool_choice="required", parallel_tool_calls=False).output
    check_arguments(next(item.arguments for item in output if item.type == "function_call"))


def structured():
    form = {"name": "sky", "schema": SKY, "strict": True}
    check_sky(ask(response_format={"type": "json_schema", "json_schema": form}).choices[0].message.content)
    check_sky(respond(text={"format": {"type": "json_schema", **form}}).output_text)


run({"chat": chat, "stream": stream, "tools": tools, "forced": forced, "structured": structured})
