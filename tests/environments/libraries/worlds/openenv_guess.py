"""A guessing game behind OpenEnv's own server."""

import random
import socket
import sys

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    number: int


class Told(Observation):
    text: str


class Game(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        lot = random.Random(seed)
        least, self.tries = lot.randrange(5), 0
        self.truth = least + lot.randrange(3)
        return Told(text=f"Guess a number from {least} to {least + 2}.")

    def step(self, action, timeout_s=None, **kwargs):
        self.tries += 1
        right = action.number == self.truth
        text = "Right." if right else "Higher." if action.number < self.truth else "Lower."
        return Told(text=text, reward=1.0 if right else -0.25, done=right or self.tries == 3)

    @property
    def state(self):
        return State(episode_id="game", step_count=self.tries)


listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
app = create_fastapi_app(Game, Guess, Told, max_concurrent_envs=16)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
