"""An environment of Atropos: groups of answers to sums, shuffled, scored -1 or 1, and dropped where all are worth the same."""

import random

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, ScoredDataGroup
from atroposlib.utils.tokenize_for_trainer import tokenize_for_trainer


class SumsConfig(BaseEnvConfig):
    most: int = 90


class Sums(BaseEnv):
    name = "sums"
    env_config_cls = SumsConfig

    @classmethod
    def config_init(cls):
        return cls.env_config_cls(group_size=8), [APIServerConfig(model_name="m", base_url="http://localhost:1/v1", api_key="x")]

    async def setup(self):
        self.train = [(a, a % 7 + 1) for a in range(self.config.most)]
        random.shuffle(self.train)
        self.iter = 0

    async def evaluate(self, *args, **kwargs): ...

    async def get_next_item(self):
        item = self.train[self.iter % len(self.train)]
        self.iter += 1
        return ((frozenset({"role": "user", "content": f"What is {item[0]} + {item[1]}?"}.items()),), sum(item))

    async def collect_trajectories(self, item):
        messages = [{"role": "system", "content": "Think."}, *(dict(one) for one in item[0])]
        said = await self.server.chat_completion(messages=messages, n=self.config.group_size, max_tokens=64)
        rolled = [
            ((*messages, {"role": "assistant", "content": choice.message.content}), item[1], choice.finish_reason)
            for choice in said.choices
        ]
        return await self.score(rolled), []

    async def score(self, rolled) -> ScoredDataGroup | None:
        scores = ScoredDataGroup(tokens=[], masks=[], scores=[])
        random.shuffle(rolled)
        for messages, truth, reason in rolled:
            out = tokenize_for_trainer(self.tokenizer, messages, include_messages=False, finish_reason=reason)
            if len([1 for mask in out["masks"] if mask != -100]) < 3:
                continue
            scores["tokens"].append(out["tokens"])
            scores["masks"].append(out["masks"])
            scores["scores"].append(1.0 if str(truth) in messages[-1]["content"] else -1.0)
        if scores["scores"] and all(score == scores["scores"][0] for score in scores["scores"]):
            return None
        return scores
