"""A fake of the hosted Tinker API, for tests: it speaks what `tinker` 0.38 speaks, on loopback, and really trains with torch.

`Fault`s are put in its way: a status, a lost connection or half an answer at the n-th request of a path. Requests with a number
that it has seen are answered as before, and executed once.
"""

from __future__ import annotations

import copy
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save
from tinker.proto import tinker_public_pb2 as proto
from torch import Tensor
from transformers import AutoModelForCausalLM

from clawpipe.model.engines.base import Sampling
from clawpipe.model.engines.embedded import EmbeddedEngine
from tests.service_faults import Fault, Server

KEY, FIREWORKS_KEY = "tml-of-the-fake", "fw-of-the-fake"
_PROTO = "application/x-protobuf"
_ALPHA = 32
Spoil = Callable[[dict[str, Tensor]], dict[str, Tensor]]


class RefusedError(Exception):
    """The request cannot be done, by the user's fault."""


class ExistsError(Exception):
    """Something has this name."""


class NoSuchError(Exception):
    """Nothing has this name."""


class Sampler(NamedTuple):
    """What a sampling client samples from: a base, or an adapter on it."""

    base: str
    path: str | None


class Model:
    """The weights of one training client."""

    vocabulary: int | None = None

    def __init__(self, base: str, directory: str, rank: int, seed: int) -> None:
        self.base, self.about = base, (base, directory, rank, seed)
        self.net = _with_adapter(directory, rank, seed)
        self.trained = [weight for weight in self.net.parameters() if weight.requires_grad]
        self.adam = torch.optim.AdamW(self.trained)

    def state(self) -> dict[str, Any]:
        weights = [weight.detach() for weight in self.trained]
        return copy.deepcopy({"about": self.about, "weights": weights, "adam": self.adam.state_dict()})

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Model:
        model = cls(*state["about"])
        with torch.no_grad():
            for weight, value in zip(model.trained, state["weights"], strict=True):
                weight.copy_(value)
        model.adam.load_state_dict(copy.deepcopy(state["adam"]))
        return model

    def forward_backward(self, message: Any) -> bytes:
        rows = [self._row(datum) for datum in message.data]
        losses = [_loss(message.loss_fn, dict(message.loss_fn_config), logprobs, inputs) for logprobs, inputs in rows]
        total = torch.stack([loss.sum() for loss in losses]).sum()
        if not message.forward_only:
            total.backward()
        return _output([logprobs.detach() for logprobs, _ in rows], float(total.detach()))

    def _row(self, datum: Any) -> tuple[Tensor, dict[str, Tensor]]:
        [chunk] = datum.model_input
        tokens = torch.from_numpy(np.frombuffer(chunk.encoded_text.tokens, np.int32).astype(np.int64))
        inputs = {name: _tensor(value) for name, value in datum.loss_fn_inputs.items()}
        if max(int(tokens.max()), int(inputs["target_tokens"].max())) >= (self.vocabulary or self.net.config.vocab_size):
            raise RefusedError("a token id is beyond the vocabulary of this model")
        logits = self.net(input_ids=tokens[None]).logits[0].float()
        return logits.log_softmax(-1).gather(-1, inputs["target_tokens"][:, None]).squeeze(-1), inputs

    def optim_step(self, adam: dict[str, float]) -> dict[str, Any]:
        norm = torch.nn.utils.clip_grad_norm_(self.trained, adam["grad_clip_norm"] or float("inf"))
        for group in self.adam.param_groups:
            group |= {"lr": adam["learning_rate"], "betas": (adam["beta1"], adam["beta2"]), "eps": adam["eps"]}
            group["weight_decay"] = adam["weight_decay"]
        self.adam.step()
        self.adam.zero_grad()
        return {"metrics": {"optim/grad_norm:mean": float(norm)}} if torch.isfinite(norm) else {}  # JSON has no NaN


def _with_adapter(directory: str, rank: int, seed: int) -> PeftModel:
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    torch.manual_seed(seed)
    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=_ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")).train()


def _exported(
    net: PeftModel, spoil: Callable[[dict[str, Tensor]], dict[str, Tensor]] = lambda tensors: tensors
) -> dict[str, bytes]:
    """Return the files of an adapter."""
    tensors = {name: tensor.detach().clone() for name, tensor in get_peft_model_state_dict(net).items()}
    about = {"r": net.peft_config["default"].r, "lora_alpha": _ALPHA, "target_modules": "all-linear", "peft_type": "LORA"}
    return {
        "adapter_model.safetensors": save(spoil(tensors)),
        "adapter_config.json": json.dumps(about | {"task_type": "CAUSAL_LM"}).encode(),
    }


def _loss(name: str, config: dict[str, float], logprobs: Tensor, inputs: dict[str, Tensor]) -> Tensor:
    if name == "cross_entropy":
        return -inputs["weights"] * logprobs
    ratio, advantages = (logprobs - inputs["logprobs"]).exp(), inputs["advantages"]
    bounded = ratio.clamp(config.get("clip_low_threshold", 0.8), config.get("clip_high_threshold", 1.2))
    match name:
        case "importance_sampling":
            return -ratio * advantages
        case "ppo":
            return -torch.minimum(ratio * advantages, bounded * advantages)
        case "cispo":
            return -bounded.detach() * advantages * logprobs
    raise RefusedError(f"no loss {name}")


def _tensor(message: Any) -> Tensor:
    kind = {proto.DTYPE_INT64: np.int64, proto.DTYPE_FLOAT32: np.float32}[message.dtype]
    return torch.from_numpy(np.frombuffer(message.dense, kind).copy())


def _as_json(output: bytes) -> dict[str, Any]:
    """Return a result as servers wrote it in JSON."""
    [record] = (found := proto.ForwardBackwardOutput.FromString(output)).loss_fn_outputs
    field = record.fields["logprobs"]
    values, ends = np.frombuffer(field.data, np.float32), np.frombuffer(field.offsets, np.int64) // 4
    rows = [values[start:end].tolist() for start, end in pairwise(ends)]
    logprobs = [{"logprobs": {"data": row, "dtype": "float32", "shape": [len(row)]}} for row in rows]
    return {"loss_fn_output_type": "ArrayRecord", "loss_fn_outputs": logprobs, "metrics": dict(found.metrics)}


def _output(rows: list[Tensor], total: float) -> bytes:
    out = proto.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    out.metrics["loss:sum"] = total
    record = out.loss_fn_outputs.add(num_datums=len(rows))
    sizes = np.cumsum([0, *(4 * len(row) for row in rows)]).astype(np.int64)
    record.fields["logprobs"].CopyFrom(
        proto.BatchedTensor(data=torch.cat(rows).numpy().tobytes(), offsets=sizes.tobytes(), dtype=proto.DTYPE_FLOAT32)
    )
    return out.SerializeToString()


@dataclass
class FakeTinker:
    """The service.

    Attributes:
        bases: directories of the base models, by their names there.
        named: the name that it says a base has, where that is another.
        faults: what goes wrong.
        requests: how many there were, by path.
        losses: how often each loss was computed, and whether only forward.
        steps: optimizer steps that were executed, whatever became of them.
        spoil: changes an exported adapter's tensors.
        vocabulary: of its models, where that is not the bases' own.
        poison: the number of the optimizer step whose gradient is not finite.
        sampled: turns that were sampled, whatever became of them.
        stale: it samples from the base, whatever adapter is asked for.
        off: what is added to the log-probs of what it samples.
        promoted: how often each model of a Fireworks account was made.
    """

    bases: dict[str, str]
    named: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)  # at a path
    requests: Counter[str] = field(default_factory=Counter)
    losses: Counter[tuple[str, bool]] = field(default_factory=Counter)
    steps: int = 0
    spoil: Spoil = lambda tensors: tensors
    vocabulary: int | None = None
    poison: int = 0
    sampled: int = 0
    stale: bool = False
    off: float = 0.0
    promoted: Counter[str] = field(default_factory=Counter)
    url: str = ""
    lock: Any = field(default_factory=threading.RLock)
    models: dict[str, Model] = field(default_factory=dict)
    saved: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    kept: dict[str, tuple[str, dict[str, bytes]]] = field(default_factory=dict)
    ttl: dict[str, int | None] = field(default_factory=dict)
    samplers: dict[str, Sampler] = field(default_factory=dict)
    engines: dict[Sampler, EmbeddedEngine] = field(default_factory=dict)
    results: dict[str, bytes | dict[str, Any]] = field(default_factory=dict)
    waiting: dict[tuple[str, int], Callable[[], Any]] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    sessions: int = 0

    def answer(self, path: str, body: bytes, query: dict[str, list[str]]) -> bytes | dict[str, Any]:
        """Answer a request; bytes are a result in protobuf, or a file."""
        with self.lock:
            if path.startswith("/v1/"):
                return self._fireworks(path.removeprefix("/v1/"), json.loads(body or b"{}"), query)
            parts = path.split("/")
            if parts[0] == "training_runs" and parts[-1] == "ttl":
                return self._set_ttl(f"tinker://{parts[1]}/{parts[3]}/{parts[4]}", json.loads(body)["ttl_seconds"])
            if parts[0] == "training_runs":
                return self._addresses(f"tinker://{parts[1]}/{parts[3]}/{parts[4]}")
            if parts[0] == "download":
                return self.files[path.removeprefix("download/")]
            if parts[0] == "sessions":
                return {}
            if parts[0] == "samplers":
                return self._sampler(parts[1])
            if parts[0] == "forward_backward" and not body.startswith(b"{"):
                message = proto.ForwardBackwardRequest.FromString(body)
                return self._numbered(message.model_id, message.seq_id, lambda: self._forward_backward(message))
            return getattr(self, f"on_{'_'.join(parts)}")(json.loads(body or b"{}"))

    def on_client_config(self, given: dict[str, Any]) -> dict[str, Any]:
        return {}

    def on_client_dynamic_config(self, given: dict[str, Any]) -> dict[str, Any]:
        return {}

    def on_telemetry(self, given: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError("nothing was to be told")

    def on_create_session(self, given: dict[str, Any]) -> dict[str, Any]:
        self.sessions += 1
        return {"type": "create_session", "session_id": f"ts-{self.sessions}"}

    def on_session_heartbeat(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"type": "session_heartbeat"}

    def on_create_model(self, given: dict[str, Any]) -> dict[str, Any]:
        name, base, lora = f"{given['session_id']}:train:{given['model_seq_id']}", given["base_model"], given["lora_config"]
        assert not lora["train_unembed"]

        def make() -> dict[str, Any]:
            if base not in self.bases:
                raise RefusedError(f"no base model {base}")
            self.models[name] = Model(base, self.bases[base], lora["rank"], lora["seed"])
            self.models[name].vocabulary = self.vocabulary
            return {"type": "create_model", "model_id": name}

        return self._promised(f"{name}-made", make)

    def on_load_weights(self, given: dict[str, Any]) -> dict[str, Any]:
        name = f"{given['session_id']}:train:{given['model_seq_id']}"
        assert given["optimizer"]

        def load() -> dict[str, Any]:
            if given["path"] not in self.saved:
                raise RefusedError(f"nothing is saved at {given['path']}")
            self.models[name] = Model.restored(self.saved[given["path"]])
            return {"type": "load_weights", "path": given["path"]}

        return self._promised(f"{name}-made", load)

    def on_get_info(self, given: dict[str, Any]) -> dict[str, Any]:
        base = self.models[given["model_id"]].base
        return {"model_id": given["model_id"], "model_data": {"model_name": self.named.get(base, base)}}

    def on_forward(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._in_json(given, given["forward_input"], forward_only=True)

    def on_forward_backward(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._in_json(given, given["forward_backward_input"], forward_only=False)

    def _in_json(self, given: dict[str, Any], inputs: dict[str, Any], forward_only: bool) -> dict[str, Any]:
        """Take a request as Fireworks' library writes it, which is what Tinker's wrote before 0.25."""
        message = proto.ForwardBackwardRequest(model_id=given["model_id"], loss_fn=inputs["loss_fn"], forward_only=forward_only)
        for one in inputs["data"]:
            datum, [chunk] = message.data.add(), one["model_input"]["chunks"]
            datum.model_input.add().encoded_text.tokens = np.asarray(chunk["tokens"], np.int32).tobytes()
            for name, value in one["loss_fn_inputs"].items():
                kind = {"int64": (proto.DTYPE_INT64, np.int64), "float32": (proto.DTYPE_FLOAT32, np.float32)}[value["dtype"]]
                datum.loss_fn_inputs[name].dtype = kind[0]
                datum.loss_fn_inputs[name].dense = np.asarray(value["data"], kind[1]).tobytes()
        return self._numbered(message.model_id, given["seq_id"], lambda: _as_json(self._forward_backward(message)))

    def _fireworks(self, path: str, given: dict[str, Any], query: dict[str, list[str]]) -> dict[str, Any]:
        """Answer what Fireworks' control plane is asked: accounts, a session's checkpoints, models that are made of them."""
        place, _, verb = path.partition(":") if path.endswith((":promote", ":getDownloadEndpoint")) else (path, "", "")
        name = place.rpartition("/")[2]
        if verb == "promote":
            files = [files for kept, (_, files) in self.kept.items() if kept.rpartition("/")[2] == name][-1]
            output = given["output_model"].rpartition("/")[2]
            if output in self.promoted:
                raise ExistsError(f"there is a model {output}")
            self.files |= {f"promoted/{output}/{file}": data for file, data in files.items()}
            self.promoted[output] += 1
            return {"model": {"name": given["output_model"]}}
        if verb == "getDownloadEndpoint":
            files = [file for file in self.files if file.startswith(f"promoted/{name}/")]
            urls = {file.rpartition("/")[2]: f"{self.url}/api/v1/download/{file}?signature=secret" for file in files}
            return {"filenameToSignedUrls": urls}
        if name == "checkpoints":  # one a page
            kept, page = list(self.kept), int(query.get("pageToken", ["0"])[0])
            found = [{"name": f"{place}/{one.rpartition('/')[2]}"} for one in kept[page : page + 1]]
            return {"trainingSessionCheckpoints": found, "nextPageToken": str(page + 1) if page + 1 < len(kept) else ""}
        if "/models/" in place:
            if name not in self.promoted:
                raise NoSuchError(f"no model {name}")
            return {"name": place, "state": "READY"}
        return {"accounts": [{"name": "accounts/mine"}]}

    def _forward_backward(self, message: Any) -> bytes:
        self.losses[message.loss_fn, message.forward_only] += 1
        return self.models[message.model_id].forward_backward(message)

    def on_optim_step(self, given: dict[str, Any]) -> dict[str, Any]:
        def step() -> dict[str, Any]:
            self.steps += 1
            model = self.models[given["model_id"]]
            if self.steps == self.poison:
                next(weight.grad for weight in model.trained if weight.grad is not None).fill_(torch.nan)
            return model.optim_step(given["adam_params"])

        return self._numbered(given["model_id"], given["seq_id"], step)

    def on_save_weights(self, given: dict[str, Any]) -> dict[str, Any]:
        path = f"tinker://{given['model_id']}/weights/{given['path']}"

        def keep() -> dict[str, Any]:
            self.saved[path] = self.models[given["model_id"]].state()
            return {"type": "save_weights", "path": path}

        return self._numbered(given["model_id"], given["seq_id"], keep)

    def on_save_weights_for_sampler(self, given: dict[str, Any]) -> dict[str, Any]:
        path = f"tinker://{given['model_id']}/sampler_weights/{given['path']}"

        def keep() -> dict[str, Any]:
            model = self.models[given["model_id"]]
            self.kept[path] = (model.base, _exported(model.net))
            return {"type": "save_weights_for_sampler", "path": path}

        return self._numbered(given["model_id"], given["seq_id"], keep)

    def on_create_sampling_session(self, given: dict[str, Any]) -> dict[str, Any]:
        name, path, base = f"{given['session_id']}:sample:{given['sampling_session_seq_id']}", given.get("model_path"), None
        if (path and path not in self.kept) or (not path and given["base_model"] not in self.bases):
            raise NoSuchError(f"nothing to sample from at {path or given['base_model']}")
        base = self.kept[path][0] if path else given["base_model"]
        self.samplers[name] = Sampler(base, None if path is None or self.stale else path)
        return {"type": "create_sampling_session", "sampling_session_id": name}

    def on_weights_info(self, given: dict[str, Any]) -> dict[str, Any]:
        base, _ = self._kept(given["tinker_path"])
        return {"base_model": base, "is_lora": True, "lora_rank": 4}

    def _set_ttl(self, path: str, seconds: int | None) -> dict[str, Any]:
        self._kept(path)
        self.ttl[path] = seconds
        return {}

    def _kept(self, path: str) -> tuple[str, dict[str, bytes]]:
        if path not in self.kept:
            raise NoSuchError(f"nothing is kept at {path}")
        return self.kept[path]

    def _sampler(self, name: str) -> dict[str, Any]:
        sampler = self.samplers[name]
        return {"sampler_id": name, "base_model": self.named.get(sampler.base, sampler.base), "model_path": sampler.path}

    def on_asample(self, given: dict[str, Any]) -> dict[str, Any]:
        name, number = given["sampling_session_id"], given["seq_id"]
        told = self._promised(f"{name}-{number}", lambda: self._sampled(self.samplers[name], given))
        return told | {"sample_sequence_ids": [f"{name}-{number}-0"]}

    def _sampled(self, sampler: Sampler, given: dict[str, Any]) -> bytes:
        [chunk], params = given["prompt"]["chunks"], given["sampling_params"]
        engine, ids = self._engine(sampler), chunk["tokens"]
        if max(ids) >= (self.vocabulary or engine.model.config.vocab_size):
            raise RefusedError("a token id is beyond the vocabulary of this model")
        self.sampled += 1
        sampling = Sampling(params["temperature"], params["max_tokens"], tuple(params.get("stop") or ()), params["top_p"])
        [turn] = engine.begin([ids]).sample({0: params.get("seed") or 0}, sampling).values()
        out = proto.SampleResponse()
        logprobs = np.asarray(engine.score([*ids, *turn.ids], len(ids)), np.float32) + self.off  # temperature 1, as documented
        out.sequences.add(
            stop_reason=["stop", "length"].index(turn.finish_reason),
            tokens=np.asarray(turn.ids, np.int32).tobytes(),
            logprobs=logprobs.tobytes(),
        )
        if given.get("prompt_logprobs"):
            out.prompt_logprobs = np.asarray([np.nan, *engine.score(ids, 1)], np.float32).tobytes()
        return out.SerializeToString()

    def _engine(self, sampler: Sampler) -> EmbeddedEngine:
        if sampler not in self.engines:
            with TemporaryDirectory() as place:
                for name, data in self.kept[sampler.path][1].items() if sampler.path else ():
                    (Path(place) / name).write_bytes(data)
                adapter = Path(place) if sampler.path else None
                self.engines[sampler] = EmbeddedEngine(Path(self.bases[sampler.base]), adapter, device="cpu")
        return self.engines[sampler]

    def on_save_weights_external(self, given: dict[str, Any]) -> dict[str, Any]:
        path = f"tinker://{given['model_id']}/external_weights/{given['path']}"

        def export() -> dict[str, Any]:
            exported = _exported(self.models[given["model_id"]].net, self.spoil)
            self.files |= {f"{path}/{name}": data for name, data in exported.items()}
            return {"type": "save_weights_external", "path": path}

        return self._numbered(given["model_id"], given["seq_id"], export)

    def _addresses(self, path: str) -> dict[str, Any]:
        names = [name.removeprefix(f"{path}/") for name in self.files if name.startswith(f"{path}/")]
        urls = {name: f"{self.url}/api/v1/download/{path}/{name}?signature=secret" for name in names}
        return {"urls": urls, "expires": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}

    def on_retrieve_future(self, given: dict[str, Any]) -> bytes | dict[str, Any]:
        return self.results.get(given["request_id"], {"type": "try_again"})

    def _promised(self, name: str, execute: Callable[[], bytes | dict[str, Any]]) -> dict[str, Any]:
        if name not in self.results:
            try:
                self.results[name] = execute()
            except RefusedError as error:
                self.results[name] = {"error": str(error), "category": "user"}
        return {"request_id": name}

    def _numbered(self, model: str, number: int, execute: Callable[[], bytes | dict[str, Any]]) -> dict[str, Any]:
        """Execute a model's requests once each, in the order of their numbers."""
        if number > self.done[model]:
            self.waiting[model, number] = execute
        while (now := (model, self.done[model] + 1)) in self.waiting:
            self._promised(f"{model}-{now[1]}", self.waiting.pop(now))
            self.done[model] += 1
        return {"request_id": f"{model}-{number}"}

    def fault_of(self, path: str) -> Fault | None:
        name = path.partition("/")[0]
        with self.lock:
            self.requests[name] += 1
            count = self.requests[name]
        return next((fault for fault in self.faults if fault.at == name and fault.first <= count <= fault.last), None)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeTinker

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_POST(self) -> None:  # the base class's name
        self._do(self.rfile.read(int(self.headers.get("content-length", 0))))

    def do_PUT(self) -> None:
        self.do_POST()

    def do_GET(self) -> None:
        self._do(b"")

    def _do(self, body: bytes) -> None:
        path = unquote(self.path.partition("?")[0]).removeprefix("/api/v1/")
        fault = self.fake.fault_of(path)
        if fault and not fault.late and fault.status >= 0:
            return self._fail(fault.status)
        keys = {self.headers.get("X-API-Key"), (self.headers.get("Authorization") or "").removeprefix("Bearer ")}
        if not keys & {KEY, FIREWORKS_KEY} and not path.startswith("download/"):
            return self._send(401, json.dumps({"detail": "no such key"}).encode(), "application/json")
        try:
            answer = self.fake.answer(path, body, parse_qs(urlsplit(self.path).query))
        except (NoSuchError, ExistsError) as error:
            status = 404 if isinstance(error, NoSuchError) else 409
            return self._send(status, json.dumps({"detail": str(error)}).encode(), "application/json")
        kind = _PROTO if isinstance(answer, bytes) else "application/json"
        sent = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        if fault and fault.late:
            return self._fail(fault.status)
        return self._send(200, sent, kind, half=fault is not None)

    def _fail(self, status: int) -> None:
        if status:
            return self._send(status, json.dumps({"detail": "a fault"}).encode(), "application/json")
        self.close_connection = True
        return self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, status: int, body: bytes, kind: str, half: bool = False) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if half else body)
        if half:
            self.wfile.flush()
            self.close_connection = True


@contextmanager
def fake_tinker(bases: dict[str, str]) -> Iterator[FakeTinker]:
    """Serve base models until the block ends; KEY is the key."""
    fake = FakeTinker(bases)
    server = Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": fake}))
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
