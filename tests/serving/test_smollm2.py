"""The embedded default model over HTTP: a question, its call, the tool's result, an answer."""

import pytest

from clawpipe.core.conversation.messages import Message
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.environments.shop import ShopEnvironment
from clawpipe.serve.serving.found import Served
from clawpipe.serve.serving.policy import ServedPolicy

SHOP = ShopEnvironment()
QUESTION = "How is the weather in Lima?"


@pytest.fixture(scope="module")
def server(start):
    spec = PolicySpec(
        base=str(resolve_base("smollm2-135m-instruct").path),
        adapter=None,
        dtype="float32",
        tool_call_format="pythonic",
        policy_version="a" * 16,
    )
    with start(ServedPolicy(Served("agent", "1", "d" * 64, spec, tuple(SHOP.tools()), tuple(SHOP.preamble())), "cpu")) as running:
        yield running


@pytest.mark.model
@pytest.mark.slow
def test_a_question_as_in_an_episode(server):
    with server.client() as client:
        model = client.models.retrieve("agent")
        fields = {"model": "agent", "tools": model.tools, "temperature": 0, "max_tokens": 24}
        messages = [*model.preamble, {"role": "user", "content": QUESTION}]
        first = client.chat.completions.create(**fields, messages=messages)
        renderer = Renderer(load_tokenizer(server.policy.served.spec.base), "pythonic", SHOP.tools())
        assert first.usage.prompt_tokens == len(renderer.prompt([*SHOP.preamble(), Message("user", QUESTION)]))
        [choice] = first.choices
        assert choice.finish_reason == "tool_calls"
        [call] = choice.message.tool_calls
        assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Lima"}')
        chunks = list(client.chat.completions.create(**fields, messages=messages, stream=True))
        streamed = [part for chunk in chunks for part in chunk.choices[0].delta.tool_calls or ()]
        assert "".join(part.function.arguments for part in streamed) == call.function.arguments
        result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
        answer = client.chat.completions.create(**fields, messages=[*messages, choice.message, result])
        assert "sunny" in answer.choices[0].message.content
