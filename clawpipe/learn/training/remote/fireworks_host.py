"""Answer a training's requests with Fireworks' own library, in the Python that has it: one JSON object a line, and one back.

Nothing of clawpipe is imported here, and of other libraries this one alone, which needs another pydantic than clawpipe does.
"""

import json
import os
import sys
from typing import Any

_SECONDS = 1800.0  # of one request with all its tries


class Calls:
    """The session of one training.

    Args:
        sdk: `fireworks.training.sdk`.
    """

    def __init__(self, sdk: Any) -> None:
        self._sdk = sdk
        self._service: Any = None
        self._client: Any = None

    def open(self, url: str | None, model: str, rank: int, alpha: int, seed: int, state: str | None) -> str:
        """Make a new adapter on the model, and load into it what was saved at `state`; return the name of the training session,
        "" where the library cannot tell."""
        self._service = self._sdk.FiretitanServiceClient(base_url=url)
        self._client = self._service.create_training_client(
            base_model=model, lora_rank=rank, lora_alpha=alpha, seed=seed, train_unembed=False
        )
        if state:
            self._client.load_state_with_optimizer(state).result(timeout=_SECONDS)
        return self._service.training_session_name or ""

    def forward(self, rows: list[dict[str, Any]]) -> list[list[float]]:
        """Return the log-prob of each row's targets."""
        done = self._client.forward(self._data(rows), "cross_entropy").result(timeout=_SECONDS)
        return [list(map(float, output["logprobs"].data)) for output in done.loss_fn_outputs]

    def backward(self, rows: list[dict[str, Any]]) -> None:
        """Add the gradient of minus the weighted sum of the targets' log-probs."""
        self._client.forward_backward(self._data(rows), "cross_entropy").result(timeout=_SECONDS)

    def step(self, adam: dict[str, float]) -> float | None:
        """Step the optimizer; return the gradient's norm, if the service tells."""
        done = self._client.optim_step(self._sdk.types.AdamParams(**adam)).result(timeout=_SECONDS)
        norms = [value for name, value in (done.metrics or {}).items() if "grad_norm" in name]
        return float(norms[0]) if norms else None

    def save(self, name: str) -> str:
        return self._client.save_state(name).result(timeout=_SECONDS).path

    def keep(self, name: str) -> str:
        return self._client.save_weights_for_sampler(name).result(timeout=_SECONDS).path

    def _data(self, rows: list[dict[str, Any]]) -> list[Any]:
        types = self._sdk.types
        return [
            types.Datum(
                model_input=types.ModelInput.from_ints(row["tokens"]),
                loss_fn_inputs={
                    "target_tokens": types.TensorData(data=row["targets"], dtype="int64", shape=[len(row["targets"])]),
                    "weights": types.TensorData(data=row["weights"], dtype="float32", shape=[len(row["weights"])]),
                },
            )
            for row in rows
        ]


def answered(calls: Calls, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request, or what went wrong."""
    try:
        return {"ok": getattr(calls, asked["do"])(**asked["given"])}
    except Exception as error:  # whatever the library raises becomes one of clawpipe's errors, on the other side
        return {"error": {"kind": type(error).__name__, "status": _status(error), "text": str(error)}}


def _status(error: BaseException | None) -> int | None:
    """Return the HTTP status of an error, or of what it was raised from."""
    while error is not None:
        if isinstance(status := getattr(error, "status_code", None), int):
            return status
        error = error.__cause__
    return None


def main() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.environ["TINKER_TELEMETRY"] = "0"  # the library would send what errors say
    os.dup2(2, 1)  # whatever the library prints belongs in the log, not among the answers
    calls = None
    for line in sys.stdin:
        try:
            from fireworks.training import sdk  # pyright: ignore[reportMissingImports]  # of this Python alone

            calls = calls or Calls(sdk)
            answer = answered(calls, json.loads(line))
        except ImportError as error:
            answer = {"error": {"kind": "ImportError", "status": None, "text": str(error)}}
        print(json.dumps(answer), file=answers, flush=True)
