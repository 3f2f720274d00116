"""An agent of OpenAI's Agents SDK with a tool and a colleague to hand over to; it asks by the Responses API, as a stream."""

import asyncio
import os

import agents

agents.set_tracing_disabled(True)


@agents.function_tool
def times(a: int, b: int) -> int:
    """Multiply."""
    return a * b


model = os.environ["OPENAI_MODEL"]
writer = agents.Agent(name="writer", instructions="Say what was found.", model=model)
asker = agents.Agent(name="asker", instructions="Find it, then hand over.", model=model, tools=[times], handoffs=[writer])


async def main() -> None:
    run = agents.Runner.run_streamed(asker, os.environ["CLAWPIPE_TASK"])
    async for _ in run.stream_events():
        pass
    print(run.final_output)


asyncio.run(main())
