"""An environment of Atropos whose policy may call a tool."""

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, ScoredDataItem

ADD = {"name": "add", "description": "Add.", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}


class Tools(BaseEnv):
    name = "tools"

    @classmethod
    def config_init(cls):
        return BaseEnvConfig(), [APIServerConfig(model_name="m", base_url="http://localhost:1/v1", api_key="x")]

    async def setup(self):
        self.iter = 0

    async def evaluate(self, *args, **kwargs): ...

    async def get_next_item(self):
        self.iter += 1
        return self.iter

    async def collect_trajectory(self, item):
        messages = [{"role": "user", "content": f"What comes after {item}?"}]
        said = await self.server.chat_completion(messages=messages, n=1, tools=[{"type": "function", "function": ADD}])
        calls = said.choices[0].message.tool_calls or []
        return ScoredDataItem(tokens=[1], masks=[1], scores=float([call.function.name for call in calls] == ["add"])), []
