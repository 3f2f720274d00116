"""`clawpipe serve` on a registered model: from the registry to a client, and the shutdown."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import openai
import peft
import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.convert_slow_tokenizer import bytes_to_unicode

from clawpipe.cli.main import app
from clawpipe.core.config.night import Gate
from clawpipe.core.conversation.messages import Message
from clawpipe.core.services.service import Service
from clawpipe.core.services.stack import project_directory
from clawpipe.core.store.artifacts import Store
from clawpipe.core.system.ports import free_port
from clawpipe.data.capture.records import Turn
from clawpipe.data.capture.segments import read_segment, segments, segments_dir
from clawpipe.errors import BusyError, ConfigError, DataError, NotFoundError
from clawpipe.learn.evaluation.verdict.gate import decide
from clawpipe.learn.evaluation.verdict.verdict import Evidence, ItemOutcome, ModelOutcomes
from clawpipe.learn.training.model.adapter import save_adapter
from clawpipe.model.engines.base import Sampling
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.spec import policy_spec
from clawpipe.model.policy.version import adapter_ref, base_ref, quantized_ref, weights_ref
from clawpipe.play.environments.shop import ShopEnvironment
from clawpipe.play.workers.merge import merge
from clawpipe.serve.serving.access import api_key, listen
from clawpipe.serve.serving.found import find

MLFLOW = "ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning"  # its own use of SQLAlchemy 2.1
TINY = project_directory() / "configs" / "tiny.yaml"
PEFT = "ignore:`is_gradient_checkpointing`:FutureWarning"  # its own use of transformers 5.23


@pytest.fixture
def command(home, base, quick_python, monkeypatch):
    """command(*arguments): a clawpipe process of this home."""
    monkeypatch.setenv("CLAWPIPE_MODEL_CACHE", str(base.path.parent))
    monkeypatch.setenv("CLAWPIPE_API_KEY", "sk-a-test-key")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    started = []

    def run(*arguments, log):
        with log.open("wb") as sink:
            process = subprocess.Popen([*quick_python, "-m", "clawpipe.cli.main", *arguments], stdout=sink, stderr=sink)
        started.append(process)
        return Service("clawpipe", process, log)

    yield run
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def champion(home, base, tmp_path):
    """A random adapter on the random base, registered and promoted; its ref."""
    policy = publish_adapter(Store(home.store), base_ref("random", base.digest, "pythonic", "float32"), base.path)
    put_in_service(home, policy, tmp_path / "package")
    return policy


@pytest.fixture
def merged_champion(home, champion, base, tmp_path):
    """The same policy merged and quantized to int8, registered and promoted in its place; its ref."""
    store = Store(home.store)

    def fill(directory):
        merge(base.path, store.require(champion), "float32", directory)
        return {"kind": "model"}

    digest, _ = store.publish("model", fill)
    policy = quantized_ref(weights_ref(champion, digest, [champion.digest]), "int8-torchao")
    put_in_service(home, policy, tmp_path / "merged")
    return policy


def put_in_service(home, policy, directory):
    from clawpipe.record.registry.package import Package, write_package
    from clawpipe.record.registry.promotions import promote
    from clawpipe.record.registry.runs import NightRun
    from clawpipe.record.registry.tracking import Tracking
    from clawpipe.record.registry.versions import register

    store, tracking, shop = Store(home.store), Tracking.of(home, "clawpipe-agent"), ShopEnvironment()
    outcome = ModelOutcomes(policy_version="a" * 16, items={f"{n}": ItemOutcome(success=n < 10, slice="s") for n in range(60)})
    package = Package(
        key=policy.policy_version,
        model_name="clawpipe-agent",
        night="2030-01-02",
        policy=policy,
        environment="shop",
        tools=tuple(shop.tools()),
        preamble=tuple(shop.preamble()),
        datasets={},
        config={},
        verdict=decide(Evidence(base=outcome, candidate=outcome, served="a" * 16), Gate()),
    )
    write_package(directory, store, package)
    info = register(tracking, directory, lambda directory: None, NightRun(night="2030-01-02"))
    promote(tracking, info.version, who="user anne", reason="I say so.", forced=True)


def publish_adapter(store, base_policy, base_path, seed=0):
    def fill(directory):
        torch.manual_seed(seed)
        config = peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
        model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base_path), config)
        save_adapter(model, directory, base_policy.digest)
        return {"kind": "model"}

    digest, _ = store.publish("adapter", fill)
    return adapter_ref(base_policy, digest, [])


@pytest.mark.slow
@pytest.mark.filterwarnings(MLFLOW, PEFT)
def test_the_champion_is_served_as_it_was_registered(home, champion, command, tmp_path, base, tokenizer):
    port = free_port()
    service = command("serve", "--port", str(port), log=tmp_path / "log")
    service.wait_healthy(f"http://127.0.0.1:{port}/healthz", 60)
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-a-test-key", max_retries=0) as client:
        [model] = client.models.list().data
        assert (model.id, model.version, model.digest) == ("clawpipe-agent", "1", champion.digest)
        assert model.policy_version == champion.policy_version
        question = {"role": "user", "content": "How many mugs?"}
        fields = {"model": model.id, "messages": [*model.preamble[:3], question], "tools": model.tools, "seed": 1}
        [choice] = client.chat.completions.create(**fields, max_tokens=8, logprobs=True).choices
        check_logprobs(choice, Store(home.store).require(champion), base, tokenizer)
        running = client.chat.completions.create(**fields | {"temperature": 0}, stream=True)
        next(iter(running))
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(20) == 0
        running.close()
    log = service.log.read_text()
    assert f"version 1 (digest {champion.digest[:12]}" in log
    assert "sk-a-test-key" not in log
    assert "Traceback" not in log


def check_logprobs(choice, adapter, base, tokenizer):
    """They are the registered adapter's, on the prompt of its episodes, and not the base's."""
    shop, letters = ShopEnvironment(), bytes_to_unicode()
    prompt = Renderer(tokenizer, "pythonic", shop.tools()).prompt([*shop.preamble()[:3], Message("user", "How many mugs?")])
    entries = choice.logprobs.content
    sampled = tokenizer.convert_tokens_to_ids([letters[byte] for entry in entries for byte in entry.bytes])
    reported = [entry.logprob for entry in entries]
    ids, start = prompt + sampled, len(prompt)
    assert reported == pytest.approx(EmbeddedEngine(base.path, adapter, device="cpu").score(ids, start), abs=1e-4)
    assert reported != pytest.approx(EmbeddedEngine(base.path, None, device="cpu").score(ids, start), abs=1e-2)


@pytest.mark.slow
@pytest.mark.filterwarnings(MLFLOW, PEFT)
def test_a_served_model_is_captured_by_one_option(home, champion, command, tmp_path, base):
    port = free_port()
    service = command("serve", "--capture", "--port", str(port), log=tmp_path / "log")
    service.wait_healthy(f"http://127.0.0.1:{port}/healthz", 120)
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-a-test-key", max_retries=0) as client:
        [model] = client.models.list().data
        question = {"role": "user", "content": "How many mugs?"}
        answers = [
            client.chat.completions.create(
                model=model.id, messages=[question], max_tokens=8, seed=seed, extra_headers={"X-Session-Id": "s"}
            )
            for seed in (1, 2)
        ]
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(30) == 0
    turns = [one.record for path in segments(segments_dir(home)) for one in read_segment(path) if isinstance(one.record, Turn)]
    assert [turn.answers[0].message["content"] for turn in turns] == [answer.choices[0].message.content for answer in answers]
    assert {(turn.session, turn.policy_version, turn.digest) for turn in turns} == {("s", champion.policy_version, champion.digest)}
    assert {(turn.no_tokens, turn.logprobs_kind, turn.temperature) for turn in turns} == {(None, "tempered", 1.0)}
    oracle = EmbeddedEngine(base.path, Store(home.store).require(champion), device="cpu")
    for turn in turns:
        ids = turn.prompt_token_ids + turn.answers[0].token_ids
        assert turn.answers[0].logprobs == pytest.approx(oracle.score(ids, len(turn.prompt_token_ids)), abs=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings(MLFLOW, PEFT)
def test_merged_quantized_weights_give_the_evaluated_tokens(home, merged_champion, command, tmp_path, tokenizer):
    spec = policy_spec(Store(home.store), merged_champion)
    prompt = Renderer(tokenizer, "pythonic", []).prompt([Message("user", "How many mugs?")])
    engine = EmbeddedEngine(spec.base, None, spec.dtype, "cpu", "int8-torchao")
    [evaluated] = engine.begin([prompt]).sample({0: 0}, Sampling(0.0, 16, (257,))).values()
    shutil.rmtree(home.store)  # served from the registry alone
    port = free_port()
    service = command("serve", "clawpipe-agent@2", "--port", str(port), log=tmp_path / "log")
    service.wait_healthy(f"http://127.0.0.1:{port}/healthz", 60)
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-a-test-key", max_retries=0) as client:
        [model] = client.models.list().data
        assert (model.version, model.digest, model.policy_version) == ("2", merged_champion.digest, merged_champion.policy_version)
        question = {"role": "user", "content": "How many mugs?"}
        answer = client.chat.completions.create(model=model.id, messages=[question], max_tokens=16, temperature=0, logprobs=True)
    entries = answer.choices[0].logprobs.content
    letters = bytes_to_unicode()
    said = tokenizer.convert_tokens_to_ids([letters[byte] for entry in entries for byte in entry.bytes])
    assert said == [token for token in evaluated.ids if token != 257]
    assert [entry.logprob for entry in entries] == pytest.approx(evaluated.logprobs[: len(entries)], abs=1e-5)
    exporting = command(
        "models",
        "export",
        "clawpipe-agent@champion",
        "--output",
        str(tmp_path / "out"),
        "--format",
        "quantized",
        log=tmp_path / "export",
    )
    assert exporting.process.wait(60) == 0
    *_, written, measured = exporting.log.read_text().splitlines()
    assert written == f"clawpipe-agent version 2 (quantized) in {tmp_path / 'out'}"
    assert measured.startswith("log-probs of the written weights, loaded again: at most 0 nats off the policy's")
    assert (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings(MLFLOW, PEFT)
def test_a_promotion_and_a_rollback_are_followed(home, champion, base, command, tmp_path):
    port = free_port()
    service = command("serve", "--port", str(port), log=tmp_path / "log")
    service.wait_healthy(f"http://127.0.0.1:{port}/healthz", 60)
    better = publish_adapter(Store(home.store), base_ref("random", base.digest, "pythonic", "float32"), base.path, seed=1)
    put_in_service(home, better, tmp_path / "better")
    await_version(port, "2", better.digest)
    back = command("rollback", "--reason", "It rambles.", "--model", "clawpipe-agent", log=tmp_path / "rollback")
    assert back.process.wait(60) == 0, back.log.read_text()
    await_version(port, "1", champion.digest)
    again = command("promote", "clawpipe-agent@2", "--reason", "It was not that.", log=tmp_path / "promote")
    assert again.process.wait(60) == 0, again.log.read_text()
    await_version(port, "2", better.digest)
    assert "Traceback" not in service.log.read_text()


@pytest.mark.slow
@pytest.mark.filterwarnings(MLFLOW, PEFT)
def test_a_base_answers_until_the_alias_names_a_version(home, base, command, tmp_path):
    """Before the first night there was nothing to serve, so nothing to capture that a first night could learn from."""
    port = free_port()
    words = ("serve", "models:/clawpipe-agent@champion", "--base", str(base.path), "--port", str(port))
    service = command(*words, log=tmp_path / "log")
    service.wait_healthy(f"http://127.0.0.1:{port}/healthz", 60)
    before = httpx.get(f"http://127.0.0.1:{port}/healthz").json()
    assert (before["model"], before["version"]) == ("clawpipe-agent", "base")  # a client asks for one name, before and after
    first = publish_adapter(Store(home.store), base_ref("random", base.digest, "pythonic", "float32"), base.path)
    put_in_service(home, first, tmp_path / "first")
    await_version(port, "1", first.digest)
    assert "could not be asked" not in service.log.read_text()


def test_a_base_is_for_an_alias(home, base, command, tmp_path):
    ended = command("serve", str(base.path), "--base", "random", log=tmp_path / "log")
    assert ended.process.wait(60) == ConfigError.exit_code
    assert "NAME@ALIAS" in ended.log.read_text()


def await_version(port, version, digest):
    """Wait until this version is in service."""
    end = time.monotonic() + 60
    while httpx.get(f"http://127.0.0.1:{port}/healthz").json()["version"] != version:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert httpx.get(f"http://127.0.0.1:{port}/healthz").json()["digest"] == digest


@pytest.mark.slow
@pytest.mark.filterwarnings(MLFLOW, PEFT)
def test_a_server_that_goes_back_says_so_in_the_promotion_log(home, champion, base, tmp_path, monkeypatch):
    from clawpipe.record.registry.promotions import history
    from clawpipe.record.registry.tracking import Tracking
    from clawpipe.serve.serving.found import Alias

    monkeypatch.setenv("CLAWPIPE_MODEL_CACHE", str(base.path.parent))
    worse = publish_adapter(Store(home.store), base_ref("random", base.digest, "pythonic", "float32"), base.path, seed=1)
    put_in_service(home, worse, tmp_path / "worse")
    alias = Alias(home, "models:/clawpipe-agent@champion")
    assert (alias.version(), alias.find("2").digest) == ("2", worse.digest)
    with pytest.raises(BusyError, match="version 2 of clawpipe-agent is in service, not 1"):
        alias.go_back("1", "late")
    alias.go_back("2", "60% of 20 answers are empty")
    move = history(Tracking.of(home, "clawpipe-agent"))[-1]
    assert (move.action, move.to_version, move.who, move.reason) == ("rollback", "1", "serve", "60% of 20 answers are empty")
    assert (alias.version(), alias.find("1").digest) == ("1", champion.digest)
    with pytest.raises(NotFoundError, match="another alias"):
        Alias(home, "models:/clawpipe-agent@canary").go_back("2", "why")


def test_a_directory_is_served(base, command, tmp_path):
    port = free_port()
    service = command("serve", str(base.path), "--port", str(port), "--tool-call-format", "hermes", log=tmp_path / "log")
    service.wait_healthy(f"http://127.0.0.1:{port}/healthz", 60)
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-a-test-key", max_retries=0) as client:
        [model] = client.models.list().data
        assert (model.id, model.version, model.digest) == (base.path.name, "base", base.digest)
        text = client.completions.create(model=model.id, prompt="Hello", max_tokens=4, temperature=0, logprobs=1)
    assert len(text.choices[0].logprobs.token_logprobs) == text.usage.completion_tokens == 4
    refused = command("serve", "models:/clawpipe-agent/1", "--tool-call-format", "hermes", "--port", "0", log=tmp_path / "refused")
    assert refused.process.wait(60) == 2
    assert "has its own format" in refused.log.read_text()


@pytest.mark.slow
@pytest.mark.filterwarnings(MLFLOW, PEFT)
def test_a_package_that_was_tampered_with_is_not_served(home, champion, base, monkeypatch):
    monkeypatch.setenv("CLAWPIPE_MODEL_CACHE", str(base.path.parent))
    served = find(home, "models:/clawpipe-agent@champion")
    assert served.digest == champion.digest
    [weights] = (home.mlflow / "artifacts").glob("**/adapter_model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    [copy] = (home.mlflow / "packages").glob("*/adapter_model.safetensors")
    copy.write_bytes(weights.read_bytes())
    with pytest.raises(DataError, match="damaged"):
        find(home, "models:/clawpipe-agent@champion")
    with pytest.raises(NotFoundError, match="the model version does not exist"):
        find(home, "models:/clawpipe-agent/7")


@pytest.mark.slow
@pytest.mark.filterwarnings(MLFLOW, PEFT)
@pytest.mark.parametrize(
    "arguments",
    [
        ["serve"],
        ["models", "export", "clawpipe-agent@champion", "--output", "out", "--format", "merged"],
        ["plan", "--check-model", "-c", "tiny.yaml"],
    ],
    ids=["serve", "export", "night"],
)
def test_flipped_bits_of_the_base_are_seen_when_it_is_loaded(command, champion, base, tmp_path, monkeypatch, arguments):
    cache = tmp_path / "models"
    shutil.copytree(base.path, cache / base.path.name)
    monkeypatch.setenv("CLAWPIPE_MODEL_CACHE", str(cache))
    weights = cache / base.path.name / "model.safetensors"
    times, content = weights.stat(), bytearray(weights.read_bytes())
    content[-15_000:] = bytes(byte ^ 1 for byte in content[-15_000:])
    weights.write_bytes(content)
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    service = command(*(str(TINY) if word == "tiny.yaml" else word for word in arguments), log=tmp_path / "log")
    assert service.process.wait(120) == 65
    said = service.log.read_text()
    assert f"{weights}: this file of a base model has changed" in said
    told = [line for line in said.splitlines() if not line.startswith(("loading ", "checking "))]
    assert len(told) == 2  # what, and what to do about it
    assert not (Path.cwd() / "out").exists()


def test_without_a_key_it_does_not_start(command, tmp_path, monkeypatch):
    monkeypatch.delenv("CLAWPIPE_API_KEY")
    service = command("serve", log=tmp_path / "log")
    assert service.process.wait(60) == 2
    assert "export CLAWPIPE_API_KEY" in service.log.read_text()


@pytest.mark.parametrize("key", ["", "two words", "schlüssel", "line\n"])
def test_keys_that_are_none(monkeypatch, key):
    monkeypatch.setenv("CLAWPIPE_API_KEY", key)
    with pytest.raises(ConfigError) as caught:
        api_key("127.0.0.1")
    assert not key or key not in str(caught.value)
    assert key or "token_urlsafe(32))" in caught.value.fix  # whole: who copied three stars had a key that anybody could guess


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_a_short_key_is_for_this_machine_alone(command, tmp_path, monkeypatch, host):
    monkeypatch.setenv("CLAWPIPE_API_KEY", "fifteen-letters")
    assert api_key(host) == "fifteen-letters"
    for public in ("0.0.0.0", "::", "", "192.0.2.1"):
        with pytest.raises(ConfigError, match="fewer than 16") as caught:
            api_key(public)
        assert "fifteen" not in str(caught.value)
    monkeypatch.setenv("CLAWPIPE_API_KEY", "sixteen-letters!")
    assert api_key("0.0.0.0") == "sixteen-letters!"


def test_a_kept_connection_does_not_wait_40_ms_for_each_answer():
    """asyncio leaves Nagle's algorithm on where the listening socket names no protocol."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_short_key_does_not_start_a_public_server(command, tmp_path):
    service = command("serve", "--host", "0.0.0.0", "--port", "0", log=tmp_path / "log")
    assert service.process.wait(60) == 2
    assert "fewer than 16 characters" in service.log.read_text()


def test_an_address_that_is_taken():
    with listen("127.0.0.1", 0) as listener, pytest.raises(ConfigError, match="cannot listen"):
        listen("127.0.0.1", listener.getsockname()[1])


def test_an_address_that_is_not_ours():
    with pytest.raises(ConfigError, match="another --port or --host"):
        listen("192.0.2.1", 0)


def test_the_start_is_told_before_libraries_load(monkeypatch, capsys):
    """On a busy machine they took a minute, in which nothing was said."""
    monkeypatch.setenv("CLAWPIPE_API_KEY", "a-key")
    monkeypatch.setattr("clawpipe.serve.serving.access.listen", lambda host, port: None)
    monkeypatch.setitem(sys.modules, "clawpipe.serve.serving.follow", None)
    with pytest.raises(ImportError):
        app(["serve", "random"], standalone_mode=False)
    assert capsys.readouterr().err == "loading random\n"
