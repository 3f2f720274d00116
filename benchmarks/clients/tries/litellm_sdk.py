"""LiteLLM as a client: chat completions, responses and Anthropic messages."""

import json

import litellm
from tried import KEY, LIMIT, MODEL, ORDER, PARAMETERS, ROOT, SKY, URL, Asked, check_arguments, check_parts, check_sky, run

TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": PARAMETERS}}
ROUTES = ({"model": f"openai/{MODEL}", "api_base": URL}, {"model": f"anthropic/{MODEL}", "api_base": ROOT})
litellm.suppress_debug_info = True


def ask(route, text="Say hello.", **more):
    given = {"messages": [{"role": "user", "content": text}], "max_tokens": LIMIT, "api_key": KEY, "num_retries": 0}
    return litellm.completion(**route, **(given | more))


def of_each(one):
    return lambda: [one(route) for route in ROUTES]


def chat(route):
    assert ask(route).choices[0].message.content


def respond():
    of_each(chat)()
    assert litellm.responses(**ROUTES[0], api_key=KEY, input="Say hello.", max_output_tokens=LIMIT).output


def stream(route):
    check_parts([chunk.choices[0].delta.content for chunk in ask(route, stream=True)])


def tools(route):
    asked, messages = Asked(), [{"role": "user", "content": ORDER}]
    while calls := (said := ask(route, messages=messages, tools=[TOOL]).choices[0].message).tool_calls:
        results = [(call.id, asked.weather(**json.loads(call.function.arguments))) for call in calls]
        messages += [said, *({"role": "tool", "tool_call_id": name, "content": content} for name, content in results)]
    asked.check(said.content)


def forced(route):
    [call] = ask(route, tools=[TOOL], tool_choice="required", parallel_tool_calls=False).choices[0].message.tool_calls
    check_arguments(call.function.arguments)


def structured(route):
    form = {"type": "json_schema", "json_schema": {"name": "sky", "schema": SKY, "strict": True}}
    check_sky(ask(route, response_format=form).choices[0].message.content)


run({"chat": respond} | {one.__name__: of_each(one) for one in (stream, tools, forced, structured)})
