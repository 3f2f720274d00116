"""mini-swe-agent's own command `mini`, as it comes from PyPI, with a class of models for a small one.

    python learns_mini_run.py -c learns_mini_agent.yaml -y --exit-immediately -t TASK -m MODEL -o made.json

mini-swe-agent takes any class of models by name. This one is its class for OpenRouter, which reads replies; it asks where OpenAI's
clients would, by plain HTTP, since importing LiteLLM takes several times as long as all the rest of a short episode; and it shows
the model some tasks that are done, as turns before the first one, because a small model does not understand them as text within the
task. Its prompts, its loop, its shell and its end are mini-swe-agent's.
"""

import os
from typing import Any, ClassVar

import requests
from minisweagent.models.openrouter_textbased_model import OpenRouterTextbasedModel, OpenRouterTextbasedModelConfig
from minisweagent.run.mini import app


class Config(OpenRouterTextbasedModelConfig):
    shown: list[dict[str, str]] = []  # noqa: RUF012  (pydantic copies it)


class Shown(OpenRouterTextbasedModel):
    abort_exceptions: ClassVar = [Exception]  # which are not tried again: a request that is refused stays so

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = Config(**kwargs)

    def _query(self, messages: list[dict[str, Any]], **kwargs: Any) -> dict[str, Any]:
        body = {"model": self.config.model_name, "messages": [messages[0], *self.config.shown, *messages[1:]]}
        head = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
        answer = requests.post(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", json=body, headers=head, timeout=900)
        answer.raise_for_status()
        return answer.json()


if __name__ == "__main__":
    app()
