"""Score replies with the environment's own `collect_trajectories`, each in a group with a right and six wrong ones."""

import asyncio
import importlib.util
import json
import random
import sys

from atroposlib.envs import base
from atroposlib.envs.server_handling.server_harness import create_chat_completion


class Words:
    """A tokenizer of letters."""

    @classmethod
    def from_pretrained(cls, name):
        return cls()

    def apply_chat_template(self, chat, add_generation_prompt=False):
        text = "".join(f"<{one['role']}>{one['content']}</>" for one in chat) + ("<assistant>" if add_generation_prompt else "")
        return [ord(letter) for letter in text]


class Replies:
    """A server whose first reply is the one to score."""

    def __init__(self, reply, right):
        self.group = [reply, f"Surely {right}.", *["I have no idea at all."] * 6]

    async def chat_completion(self, messages, n, **_):
        return create_chat_completion(self.group[:n], n)


def scored(env, row):
    words = row["question"].split()
    first, second = int(words[2]), int(words[4].strip("?"))
    prompt = (frozenset({"role": "user", "content": row["question"]}.items()),)
    env.server = Replies(row["said"][0], first + second)
    group, _ = asyncio.run(env.collect_trajectories((prompt, first + second)))
    texts = ["".join(map(chr, tokens)) for tokens in group["tokens"]]
    return next(score for text, score in zip(texts, group["scores"], strict=True) if row["said"][0] in text)


rows = json.load(sys.stdin)
base.AutoTokenizer = Words
spec = importlib.util.spec_from_file_location("sums", rows[0]["file"])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
config, servers = module.Sums.config_init()
env = module.Sums(config, servers, testing=True)
random.seed(0)
asyncio.run(env.setup())
print(json.dumps([scored(env, row) for row in rows]))
