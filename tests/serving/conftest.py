"""Real servers on loopback: one with random weights, one that has memorised a single conversation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import openai
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec, WrittenFormat
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.base import BaseModel, resolve_base
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.serve.serving.access import listen
from clawpipe.serve.serving.found import Served
from clawpipe.serve.serving.live import Live
from clawpipe.serve.serving.policy import ServedPolicy
from clawpipe.serve.serving.server import Server
from clawpipe.serve.serving.versions import Versions

KEY = "sk-a-test-key"
TOOLS = (ToolSpec("stock", "Pieces in stock.", {"item": "string"}),)
TALK = (
    Message("user", "How many mugs?"),
    Message("assistant", "I look.", (ToolCall("call_0_0", "stock", '{"item": "mug"}'),)),
    Message("tool", "57", tool_call_id="call_0_0", name="stock"),
    Message("assistant", "The answer is 57."),
)


@dataclass(frozen=True)
class Running:
    """A server and its policy."""

    policy: ServedPolicy
    url: str

    def client(self, key: str = KEY) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=60)


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> BaseModel:
    """The built-in model of random weights, in a cache for the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLAWPIPE_MODEL_CACHE", str(tmp_path_factory.mktemp("models")))
        return resolve_base("random")


@pytest.fixture(scope="session")
def tokenizer(base: BaseModel):
    return load_tokenizer(base.path)


@pytest.fixture(scope="session")
def engine(base: BaseModel) -> EmbeddedEngine:
    """A second engine, the oracle of the server's answers."""
    return EmbeddedEngine(base.path, None, device="cpu")


def served(directory: Path, calls: WrittenFormat = "pythonic") -> Served:
    spec = PolicySpec(base=str(directory), adapter=None, dtype="float32", tool_call_format=calls, policy_version="f" * 16)
    return Served("agent", "3", "d" * 64, spec, TOOLS, TALK[:1])


@contextmanager
def serving(policy: ServedPolicy) -> Iterator[Running]:
    """A server in a thread; its socket listens from the start, so that clients need not wait."""
    listener = listen("127.0.0.1", 0)
    server = Server(Versions(Live(policy)), KEY, log_level="error")
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield Running(policy, f"http://127.0.0.1:{listener.getsockname()[1]}")
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def served_as() -> Callable:
    """served_as(directory): version 3 of "agent", without an adapter, on a base model of the test's own."""
    return served


@pytest.fixture(scope="session")
def start() -> Callable:
    """serving(policy): a context with a server of the test's own."""
    return serving


@pytest.fixture(scope="session")
def random_server(base: BaseModel) -> Iterator[Running]:
    with serving(ServedPolicy(served(base.path), "cpu")) as running:
        yield running


@pytest.fixture
def client(random_server: Running) -> Iterator[openai.OpenAI]:
    with random_server.client() as client:
        yield client


@pytest.fixture
def ask(client: openai.OpenAI) -> Callable:
    """ask(**fields): a chat completion of the random model."""

    def send(content: str = "Hello", **fields):
        fields = {"model": "agent", "messages": [{"role": "user", "content": content}], "max_completion_tokens": 24} | fields
        return client.chat.completions.create(**fields)

    return send


@pytest.fixture
def talk() -> tuple[tuple[Message, ...], tuple[ToolSpec, ...]]:
    """The conversation that the parrot has memorised: messages and tools."""
    return TALK, TOOLS


@pytest.fixture(scope="session")
def parrot(base: BaseModel, tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The random model after it has memorised `TALK`, with its tools."""
    return memorise(base, tokenizer, "pythonic", tmp_path_factory.mktemp("parrot"))


def memorise(base: BaseModel, tokenizer: PreTrainedTokenizerFast, calls: WrittenFormat, directory: Path) -> Path:
    """Write the random model after it has memorised `TALK` in a tool-call format."""
    ids, mask = Renderer(tokenizer, calls, TOOLS).render_with_mask(TALK)
    tokens = torch.tensor([ids])
    labels = torch.where(torch.tensor([mask]), tokens, -100)
    model = AutoModelForCausalLM.from_pretrained(base.path)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        model(input_ids=tokens, labels=labels).loss.backward()
        optimizer.step()
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def parrot_server(parrot: Path) -> Iterator[Running]:
    with serving(ServedPolicy(served(parrot), "cpu")) as running:
        yield running
