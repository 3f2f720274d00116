"""Tool calls end to end. The parrot has memorised one conversation, so its answers are known."""

import pytest

from clawpipe.core.conversation.messages import ToolSpec
from clawpipe.model.policy.formats.harmony import MARKERS
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.tiny import byte_tokenizer
from clawpipe.serve.serving.policy import ServedPolicy
from tests.serving.conftest import memorise, served, serving

QUESTION = {"role": "user", "content": "How many mugs?"}
CALL = {"name": "stock", "arguments": '{"item": "mug"}'}


@pytest.fixture
def ask(parrot_server):
    """ask(messages, **fields): a greedy completion with the server's own tools."""
    with parrot_server.client() as client:
        tools = client.models.retrieve("agent").tools

        def send(messages, **fields):
            return client.chat.completions.create(
                **{"model": "agent", "messages": messages, "tools": tools, "temperature": 0} | fields
            )

        yield send


def test_a_call_its_result_and_the_answer(ask, tokenizer, talk):
    first = ask([QUESTION])
    [choice] = first.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I look."
    [call] = choice.message.tool_calls
    assert (call.id, call.type, call.function.model_dump()) == ("call_0_0", "function", CALL)
    second = ask([QUESTION, choice.message, {"role": "tool", "tool_call_id": call.id, "content": "57"}], logprobs=True)
    assert second.choices[0].message.content == "The answer is 57."
    assert (second.choices[0].finish_reason, second.choices[0].message.tool_calls) == ("stop", None)
    messages, tools = talk
    assert second.usage.prompt_tokens == len(Renderer(tokenizer, "pythonic", tools).prompt(messages[:3]))
    tokens = [entry.token for entry in second.choices[0].logprobs.content]
    assert "".join(tokens) == "The answer is 57."
    assert second.usage.completion_tokens == len(tokens) + 1  # the end marker is sampled, and is no text


def test_a_turn_of_several_messages_with_an_end_of_its_own(base, tmp_path):
    """A model of harmony's markers, as gpt-oss: its first turn ends with `<|call|>`, its second with `<|return|>`."""
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": list(MARKERS)})
    directory = memorise(base, tokenizer, "harmony", tmp_path / "harmony")
    with serving(ServedPolicy(served(directory, "harmony"), "cpu")) as server, server.client() as client:
        known = {"model": "agent", "tools": client.models.retrieve("agent").tools, "temperature": 0}
        [called] = client.chat.completions.create(messages=[QUESTION], **known).choices
        [call] = called.message.tool_calls
        result = {"role": "tool", "tool_call_id": call.id, "content": "57"}
        whole = {"messages": [QUESTION, called.message, result], **known}
        [answered] = client.chat.completions.create(**whole).choices
        streamed = [chunk.choices[0] for chunk in client.chat.completions.create(**whole, stream=True)]
    assert (called.finish_reason, called.message.content, call.function.model_dump()) == ("tool_calls", "I look.", CALL)
    assert (answered.finish_reason, answered.message.content) == ("stop", "The answer is 57.")
    assert "".join(choice.delta.content or "" for choice in streamed) == "The answer is 57."


def test_nested_and_optional_arguments_reach_the_policy(parrot_server, tokenizer, talk):
    place = {"type": "object", "properties": {"shelf": {"type": ["integer", "null"]}, "side": {"enum": ["left", "right"]}}}
    schema = {"type": "object", "properties": {"item": {"type": "string"}, "places": {"type": "array", "items": place}}}
    tool = ToolSpec("stock", "Pieces in stock.", schema)
    with parrot_server.client() as client:
        answer = client.chat.completions.create(
            model="agent", messages=[QUESTION], tools=[tool.as_function()], max_completion_tokens=1
        )
    prompt = Renderer(tokenizer, "pythonic", [tool]).prompt(talk[0][:1])
    assert answer.usage.prompt_tokens == len(prompt)
    assert '"enum": ["left", "right"]' in tokenizer.decode(prompt)


def test_a_streamed_call(ask):
    whole = ask([QUESTION], logprobs=True)
    chunks = list(ask([QUESTION], logprobs=True, stream=True))
    choices = [chunk.choices[0] for chunk in chunks]
    assert "".join(choice.delta.content or "" for choice in choices) == "I look."
    first, second = (choice.delta.tool_calls[0] for choice in choices if choice.delta.tool_calls)
    assert (first.index, first.id, first.type, first.function.name, first.function.arguments) == (
        0,
        "call_0_0",
        "function",
        "stock",
        "",
    )
    assert (second.index, second.id, second.function.name, second.function.arguments) == (0, None, None, CALL["arguments"])
    assert choices[-1].finish_reason == "tool_calls"
    tokens = [entry.token for choice in choices if choice.logprobs for entry in choice.logprobs.content]
    assert "".join(tokens) == 'I look.\nstock(item="mug")'
    assert tokens == [entry.token for entry in whole.choices[0].logprobs.content]


def test_the_clients_own_stream_helper_puts_the_call_together(parrot_server):
    with parrot_server.client() as client:
        tools = client.models.retrieve("agent").tools
        with client.chat.completions.stream(model="agent", messages=[QUESTION], tools=tools, temperature=0) as stream:
            stream.until_done()
            [choice] = stream.get_final_completion().choices
    assert choice.message.content == "I look."
    assert choice.message.tool_calls[0].function.arguments == CALL["arguments"]


def test_a_turn_cut_off_inside_a_call_is_text(ask):
    [choice] = ask([QUESTION], max_completion_tokens=len("I look.\nstock(it")).choices
    assert (choice.finish_reason, choice.message.content, choice.message.tool_calls) == ("length", "I look.\nstock(it", None)


def test_a_stop_string_works_on_the_text_of_a_call(ask):
    [choice] = ask([QUESTION], stop="\n").choices
    assert (choice.finish_reason, choice.message.content, choice.message.tool_calls) == ("stop", "I look.", None)


def test_no_tool_is_shown_or_called_where_none_may_be(ask, tokenizer, talk):
    answer = ask([QUESTION], tool_choice="none", max_completion_tokens=20)
    messages, _ = talk
    assert answer.usage.prompt_tokens == len(Renderer(tokenizer, "pythonic", ()).prompt(messages[:1]))
    assert answer.choices[0].message.tool_calls is None
