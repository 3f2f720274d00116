"""smolagents: an agent that writes code, in which it may call a tool."""

import os

from smolagents import CodeAgent, OpenAIModel, tool  # pyright: ignore[reportMissingImports]


@tool
def times(a: int, b: int) -> int:
    """Multiply.

    Args:
        a: a number.
        b: a number.
    """
    return a * b


model = OpenAIModel(os.environ["OPENAI_MODEL"], api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
print(CodeAgent(tools=[times], model=model, max_steps=3).run(os.environ["CLAWPIPE_TASK"]))
