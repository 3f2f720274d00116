"""An environment of Atropos that rewards letters. Its server keeps the tokens, or it makes them of the text.

Managed (server_type sglang), tokens and log-probs are those that were sampled; else they are its text, tokenized for a trainer.
"""

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, ScoredDataGroup
from atroposlib.utils.tokenize_for_trainer import tokenize_for_trainer


class LettersConfig(BaseEnvConfig):
    managed: bool = True
    temperature: float = 1.0
    max_tokens: int = 16


class Letters(BaseEnv):
    name = "letters"
    env_config_cls = LettersConfig

    @classmethod
    def config_init(cls):
        return cls.env_config_cls(group_size=4), [APIServerConfig(model_name="m", base_url="http://localhost:1/v1", api_key="x")]

    async def setup(self):
        self.iter = 0

    async def evaluate(self, *args, **kwargs): ...

    async def get_next_item(self):
        self.iter += 1
        return self.iter

    async def collect_trajectories(self, item):
        messages = [{"role": "user", "content": f"Write {item}."}]
        fields = {"n": self.config.group_size, "max_tokens": self.config.max_tokens, "temperature": self.config.temperature}
        group = ScoredDataGroup(tokens=[], masks=[], scores=[], messages=[])
        if not self.config.managed:
            said = await self.server.chat_completion(messages=messages, **fields)
            for choice in said.choices:
                chat = [*messages, {"role": "assistant", "content": choice.message.content}]
                self.add(group, chat, tokenize_for_trainer(self.tokenizer, chat))
            return group, []
        group["inference_logprobs"] = []
        async with self.server.managed_server(tokenizer=self.tokenizer) as server:
            said = await server.chat_completion(messages=messages, **fields)
            for choice, node in zip(said.choices, server.get_state()["nodes"], strict=True):
                chat = [*messages, {"role": "assistant", "content": choice.message.content}]
                self.add(group, chat, {"tokens": node.tokens, "masks": node.masked_tokens})
                group["inference_logprobs"].append(node.logprobs)
        group["generation_params"] = {"temperature": self.config.temperature}
        return group, []

    def add(self, group, chat, streams):
        group["tokens"].append(streams["tokens"])
        group["masks"].append(streams["masks"])
        group["messages"].append([one | {"content": one["content"].replace("\0", "")} for one in chat])  # random weights say that
        said = chat[-1]["content"]
        group["scores"].append(sum(one.isascii() and one.isalpha() for one in said) / max(len(said), 1))


if __name__ == "__main__":
    Letters.cli()
