"""A fake SGLang server: its protocol in front of the embedded engine, so that its tokens and log-probs are true.

The shapes and rules are those of SGLang 0.5.23 (`sglang/srt/entrypoints/http_server.py`, `managers/tokenizer_manager.py`,
`managers/schedule_batch.py`); a real one has never been asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from clawpipe.model.engines.base import Sampling
from tests.fake_vllm import FakeVllm, Json

_RESERVED = 6  # tokens that no request may fill


@dataclass
class FakeSglang(FakeVllm):
    """What the server holds.

    Attributes:
        own_ends: the model's own end tokens, which end every turn.
        weights: version of the base model's weights.
    """

    GENERATE: ClassVar[str] = "/generate"
    own_ends: tuple[int, ...] = ()
    weights: str = "default"

    def answer(self, method: str, path: str, body: Json) -> tuple[int, Any]:
        if path == "/server_info":
            longest = self._engine("base").context - _RESERVED
            return 200, {"version": "0.5.23-fake", "max_req_input_len": longest, "max_total_num_tokens": 100_000}
        if path == "/model_info":
            return 200, {"model_path": str(self.base), "weight_version": self.weights}
        if path in ("/load_lora_adapter", "/unload_lora_adapter"):
            self.asked.append(path)
            return self._load(body["lora_name"], body["lora_path"]) if path.startswith("/load") else self._unload(body["lora_name"])
        if path == "/v1/load_lora_adapter":
            return 404, {"detail": "Not Found"}
        return super().answer(method, path, body)

    def generate(self, body: Json) -> tuple[int, Json]:
        """Sample a turn with the embedded engine, to the first end that is asked for or the model's own."""
        name, params, ids = body.get("lora_path"), body["sampling_params"], body["input_ids"]
        if name and name not in self.held:
            return 400, {"error": {"message": f"Got LoRA adapter that has never been loaded: {name}"}}
        if len(ids) + params["max_new_tokens"] > self._engine("base").context:
            return 400, {"error": {"message": "Requested token count exceeds the model's maximum context length"}}
        ends = () if params["ignore_eos"] else (*params["stop_token_ids"], *self.own_ends)
        sampling = Sampling(params["temperature"], params["max_new_tokens"], ends)
        with self._lock:
            engine = self._engine(name if name and not self.stale else "base")
            [turn] = engine.begin([ids]).sample({0: params["sampling_seed"]}, sampling).values()
            logprobs = engine.score([*ids, *turn.ids], len(ids)) if self.raw else turn.logprobs
        ended = (
            {"type": "stop", "matched": turn.ids[-1]}
            if turn.finish_reason == "stop"
            else {"type": "length", "length": len(turn.ids)}
        )
        meta = {"id": "r", "finish_reason": ended, "prompt_tokens": len(ids), "completion_tokens": len(turn.ids)}
        meta |= {"weight_version": self.weights, "cached_tokens": 0}
        meta |= {"output_token_logprobs": [[value, token, None] for value, token in zip(logprobs, turn.ids, strict=True)]}
        return 200, {"text": "", "output_ids": turn.ids, "meta_info": meta}

    def _load(self, name: str, path: str) -> tuple[int, Json]:
        if name in self.held:
            return 400, _failed(f"Failed to load LoRA adapter {name} because it is already loaded")
        if not self.takes_adapters:
            return 400, _failed("LoRA is not enabled. Please set `--enable-lora` to enable LoRA.")
        self.held[name] = path
        return 200, {"success": True, "error_message": None, "loaded_adapters": dict(self.held)}

    def _unload(self, name: str) -> tuple[int, Json]:
        return (200, {"success": True}) if self.held.pop(name, None) else (400, _failed(f"{name} does not exist"))


def _failed(why: str) -> Json:
    return {"success": False, "error_message": why, "loaded_adapters": None}


def short(fake: FakeVllm, body: Json) -> tuple[int, Json]:
    """A log-prob is missing."""
    status, answer = fake.generate(body)
    answer["meta_info"]["output_token_logprobs"].pop()
    return status, answer


def unfinished(fake: FakeVllm, body: Json) -> tuple[int, Json]:
    """The turn ends before its limit, for no reason."""
    return fake.generate(body | {"sampling_params": body["sampling_params"] | {"max_new_tokens": 1}})


def infinite(fake: FakeVllm, body: Json) -> tuple[int, Json]:
    """What SGLang writes for a log-prob that is not finite."""
    status, answer = fake.generate(body)
    answer["meta_info"]["output_token_logprobs"][0][0] = -3.4028234663852886e38
    return status, answer


def changed(fake: FakeVllm, body: Json) -> tuple[int, Json]:
    """The weights were changed within the turn."""
    status, answer = fake.generate(body)
    answer["meta_info"]["weight_versions"] = [{"version": "default", "start": 0, "end": 1}, {"version": "2", "start": 1, "end": 2}]
    return status, answer


def aborted(fake: FakeVllm, body: Json) -> tuple[int, Json]:
    """The server gave the turn up, as it does when it is paused."""
    status, answer = fake.generate(body)
    answer["meta_info"]["finish_reason"] = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
    return status, answer
