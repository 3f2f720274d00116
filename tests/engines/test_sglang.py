"""SGLang as an engine: what its protocol has that vLLM's has not."""

from __future__ import annotations

import http.server
import json
import threading
from pathlib import Path

import pytest

from clawpipe.errors import BusyError, ConfigError, DataError
from clawpipe.model.engines.base import Sampling
from clawpipe.model.engines.embedded import EmbeddedEngine
from tests.fake_sglang import FakeSglang, aborted
from tests.fake_vllm import FakeVllm, serving

PROMPT = [65, 66, 67]


@pytest.fixture
def fake(policy) -> FakeSglang:
    return FakeSglang(Path(policy.base))


def test_an_end_that_nobody_asked_for_ends_no_turn(opened, fake, policy):
    """Every id below 300 is an end of the model's own here, so that SGLang stops in the middle of turns; log-probs stay true."""
    fake.own_ends = tuple(range(0, 300))
    with serving(fake) as url:
        turn = opened("sglang", url, policy).generate(PROMPT, 3, Sampling(1.0, 12))
    assert (len(turn.ids), turn.finish_reason) == (12, "length")
    assert fake.asked.count("/generate") > 1
    own = EmbeddedEngine(Path(policy.base), None, device="cpu")
    assert turn.logprobs == pytest.approx(own.score([*PROMPT, *turn.ids], len(PROMPT)), abs=1e-4)


def test_a_turn_ends_at_the_token_that_is_asked_for(opened, fake, policy):
    with serving(fake) as url:
        engine = opened("sglang", url, policy)
        whole = engine.generate(PROMPT, 3, Sampling(1.0, 8))
        ended = engine.generate(PROMPT, 3, Sampling(1.0, 8, (whole.ids[4],)))
    cut = whole.ids.index(whole.ids[4]) + 1
    assert (ended.ids, ended.finish_reason) == (whole.ids[:cut], "stop")


def test_a_turn_ends_before_the_context_is_full(opened, fake, policy):
    with serving(fake) as url:
        engine = opened("sglang", url, policy)
        turn = engine.generate(PROMPT * ((engine.context - 4) // 3), 3, Sampling(1.0, 50))
        long = len(PROMPT * ((engine.context - 4) // 3)) + len(turn.ids)
    assert (long, turn.finish_reason) == (engine.context, "length")


def test_weights_that_were_exchanged_since_are_refused(opened, fake, policy):
    with serving(fake) as url:
        engine = opened("sglang", url, policy)
        engine.generate(PROMPT, 3, Sampling(1.0, 4))
        fake.weights = "2"  # somebody has called /update_weights_from_disk
        with pytest.raises(DataError, match="the weights of its base model have changed"):
            engine.generate(PROMPT, 3, Sampling(1.0, 4))


def test_an_adapter_that_was_evicted_is_loaded_again(opened, fake, policy, adapter):
    adapted = policy.model_copy(update={"adapter": str(adapter)})
    with serving(fake) as url:
        engine = opened("sglang", url, adapted)
        first = engine.generate(PROMPT, 3, Sampling(1.0, 4))
        fake.held.clear()
        assert engine.generate(PROMPT, 3, Sampling(1.0, 4)) == first
        assert fake.asked.count("/load_lora_adapter") == 2


def test_a_turn_that_the_server_gave_up_is_for_later(opened, fake, policy):
    with serving(fake) as url:
        engine = opened("sglang", url, policy)
        fake.faults.append(aborted)
        with pytest.raises(BusyError, match="before its time"):
            engine.generate(PROMPT, 3, Sampling(1.0, 4))


def test_another_server_at_the_url_is_one_line(opened, policy):
    with (
        serving(FakeVllm(Path(policy.base))) as url,
        pytest.raises(ConfigError, match="no server of SGLang: /server_info") as refused,
    ):
        opened("sglang", url, policy)
    assert "SGLang 0.5.23" in refused.value.fix


@pytest.mark.parametrize("unfit", [{"use_rslora": True}, {"use_dora": True}, {"alpha_pattern": {"q_proj": 4}}])
def test_an_adapter_that_sglang_scales_wrongly_is_refused(opened, fake, policy, adapter, tmp_path, unfit):
    """Its source divides alpha by the rank, whatever the adapter says; in bfloat16 the check of log-probs may not notice."""
    config = json.loads((adapter / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | unfit))
    with serving(fake) as url, pytest.raises(ConfigError, match=next(iter(unfit))) as refused:
        opened("sglang", url, policy.model_copy(update={"adapter": str(tmp_path)}))
    assert "train.lora.variant" in refused.value.fix
    assert fake.held == {}


def test_a_page_of_html_is_one_line(opened, policy):
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<html>welcome</html>")

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            with pytest.raises(ConfigError, match="no server of SGLang"):
                opened("sglang", f"http://127.0.0.1:{server.server_port}", policy)
        finally:
            server.shutdown()
            thread.join()
