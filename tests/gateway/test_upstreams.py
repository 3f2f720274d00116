"""Several engines behind one gateway: sessions stay, weights say where new ones go, and one that goes down fails no request."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack

import pytest

from clawpipe.errors import ConfigError
from clawpipe.serve.gateway.upstreams import Listed, Upstreams

BLUE, GREEN = "http://127.0.0.1:1", "http://127.0.0.1:2"


def written(path, *pairs):
    path.write_text(listed(*pairs))
    return path


def listed(*pairs):
    return "".join(f"- url: {url}\n  weight: {weight}\n" for url, weight in pairs)


def test_one_of_two_engines_goes_down_and_no_request_fails(home, start, start_fake, tmp_path):
    with ExitStack() as blues, start_fake(tmp_path / "green") as green:
        blue = blues.enter_context(start_fake(tmp_path / "blue"))
        engines = written(tmp_path / "engines.yaml", (f"{blue.url}/v1", 1), (green.url, 0))
        with start(home, str(engines)) as gateway:
            ask = lambda text, session, **more: gateway.ask(text, headers={"x-session-id": session}, **more)  # noqa: E731
            ask("one", "s1")
            ask("two", "s1", stream=True)
            assert not green.asked()
            blues.close()
            ask("three", "s1")
            ask("four", "s2", stream=True)
            assert gateway.get("/v1/models").status_code == 200
            assert gateway.get("/healthz").status_code == 200
            found = [(turn.request["messages"][-1]["content"], turn.upstream) for turn in gateway.turns()]
        assert found == [("one", blue.url), ("two", blue.url), ("three", green.url), ("four", green.url)]


def test_an_answer_that_has_begun_is_not_asked_for_again(home, start, start_fake, tmp_path):
    with start_fake(tmp_path / "blue", "--broken") as blue, start_fake(tmp_path / "green") as green:
        engines = written(tmp_path / "engines.yaml", (blue.url, 1), (green.url, 0))
        with start(home, str(engines)) as gateway:
            with pytest.raises(Exception, match="does not answer"):
                gateway.ask("one two three", stream=True)
            assert [turn.ending for turn in gateway.turns()] == ["broken"]
            assert not green.asked()


def test_a_changed_file_moves_new_sessions_and_no_old_one(tmp_path):
    async def run():
        path = written(tmp_path / "engines.yaml", (BLUE, 1), (GREEN, 0))
        engines = Upstreams.named(str(path))
        await engines.open()

        async def change(text):
            path.write_text(text)
            os.utime(path, ns=(path.stat().st_mtime_ns, path.stat().st_mtime_ns + 1))
            await engines.look()  # nobody answers at any of these

        assert {engines.of(f"s{number}").url for number in range(9)} == {BLUE}
        await change(listed((BLUE, 0), (GREEN, 1)))
        assert engines.of("s1").url == BLUE
        assert engines.of("new").url == GREEN
        await change(listed((GREEN, 1), ("http://127.0.0.1:3", 0)))
        assert engines.of("s1").url == GREEN  # its engine is no longer listed
        with pytest.raises(ConfigError, match="no list of engines"):
            await change("- url: 7")
        assert engines.of("new").url == GREEN
        await engines.close()

    asyncio.run(run())


def test_new_sessions_are_shared_by_weight_among_live_engines():
    engines = Upstreams([Listed(url=BLUE, weight=3), Listed(url=GREEN)])
    first = [engines.of(f"s{number}").url for number in range(400)]
    assert 250 <= first.count(BLUE) <= 350  # 300 are expected; which sessions is a matter of their ids
    assert engines.mark_silent(engines.of("s0"))
    silent = first[0]
    assert {engines.of(f"s{number}").url for number in range(400)} == {BLUE, GREEN} - {silent}
    assert not engines.mark_silent(engines.of("s0"))  # the last one
    assert engines.of("s0").url in (BLUE, GREEN)  # still tried


@pytest.mark.parametrize(
    "text", ["", "[]", "- url: ftp://x", "- url: http://a\n- url: http://a\n", "- {url: 'http://a', weight: -1}"]
)
def test_a_file_that_lists_no_engines_is_refused(tmp_path, text):
    (tmp_path / "engines.yaml").write_text(text)
    with pytest.raises(ConfigError):
        Upstreams.named(str(tmp_path / "engines.yaml"))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="FileNotFoundError"):
        Upstreams.named(str(tmp_path / "engines.yaml"))
