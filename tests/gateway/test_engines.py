"""What an engine can do is found out once, and what it cannot is not pretended."""

from __future__ import annotations

import httpx
import pytest

from clawpipe.errors import ConfigError
from clawpipe.serve.gateway.upstream import Upstream


@pytest.mark.parametrize(
    ("flags", "kind", "temperature", "tokens"),
    [
        ([], "tempered", 1.0, True),
        (["--default", "0.6"], "tempered", 0.6, True),
        (["--raw"], "raw", None, True),
        (["--litellm"], "tempered", 1.0, True),
        (["--ignorant"], "none", None, False),
        (["--strict"], "none", None, False),
    ],
)
def test_each_engine_is_taken_for_what_it_is(tmp_path, home, start, start_fake, flags, kind, temperature, tokens):
    with start_fake(tmp_path / "log", *flags) as fake, start(home, fake.url) as gateway:
        assert gateway.ask("one two").choices[0].message.content == "one two "
        gateway.ask("three", stream=True)
        probes = [one for one in httpx.get(f"{fake.url}/fake/asked").json() if one["body"].get("max_tokens") == 1]
        assert len(probes) <= 4  # once, not for each request
        for turn in gateway.turns():
            assert (turn.logprobs_kind, turn.temperature) == (kind, temperature)
            assert (turn.answers[0].token_ids is not None) == tokens
            assert (turn.no_tokens is None) == tokens
        assert len(gateway.turns()) == 2
        if not tokens:
            assert not any("return_token_ids" in one["body"] for one in fake.asked())
        logged = gateway.service.log.read_text()
        assert logged.count("model 'agent' at") == 1
        assert ("tokens: none" in logged) == (not tokens)


@pytest.mark.parametrize("url", ["", "ftp://x", "localhost:8000", "http://", "http://u:p@x", "http://x/?a=b", "file:///etc/passwd"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ConfigError, match="no address"):
        Upstream(url)
