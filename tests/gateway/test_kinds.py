"""Which kind the log-probs of a turn are of, whatever the request says and whatever engine is at the address by now."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from clawpipe.core.system.ports import free_port
from clawpipe.data.wire.draw import NEUTRAL
from clawpipe.serve.gateway.capabilities import UNKNOWN, Capabilities
from clawpipe.serve.gateway.turns import _kind, _temperature
from clawpipe.serve.gateway.upstream import Upstream
from tests.gateway.engine import Engine


@asynccontextmanager
async def asking(port):
    upstream = Upstream(f"http://127.0.0.1:{port}", "sk-upstream")
    await upstream.open()
    try:
        yield upstream
    finally:
        await upstream.close()


async def until(holds):
    """Give the loop turns until something holds that follows by itself."""
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


def found_of(engine):
    async def run():
        port = free_port()
        async with engine.at(port), asking(port) as upstream:
            return await upstream.capabilities("m")

    return asyncio.run(run())


@pytest.mark.parametrize("kind", ["raw", "tempered"])
@pytest.mark.parametrize("settings", [{"top_p": 0.9}, {"tool_choice": "required"}, {"guided_json": {}}, {"min_tokens": 9}], ids=str)
def test_a_changed_draw_has_no_kind(kind, settings):
    asked = SimpleNamespace(capabilities=Capabilities(True, kind, neutral=True), body={})
    assert _kind(asked, None, {}) == kind
    asked.body = settings
    assert _kind(asked, None, {}) == "none"
    assert _kind(asked, kind, {}) == "none"  # whatever the answer's header says


def test_the_header_of_the_answer_is_believed_before_the_probe():
    asked = SimpleNamespace(capabilities=Capabilities(True, "tempered", neutral=True), body={})
    assert _kind(asked, "raw", {}) == "raw"
    assert _kind(asked, "something else", {}) == "tempered"


def test_what_nobody_found_out_has_no_kind():
    asked = SimpleNamespace(capabilities=UNKNOWN, body={**NEUTRAL})
    assert _kind(asked, None, UNKNOWN.defaults) == "none"
    assert _kind(asked, "raw", UNKNOWN.defaults) == "raw"


@pytest.mark.parametrize(
    ("engine", "neutral"),
    [
        (Engine("raw"), True),
        (Engine("raw", defaults={"top_p": 0.8}), False),
        (Engine("raw", keeps_seed=False), False),  # nobody can tell
        (Engine("tempered"), True),
        (Engine("tempered", keeps_seed=False), True),  # its log-probs tell it
        (Engine("tempered", defaults={"top_p": 0.9}), False),
        (Engine("tempered", defaults={"temperature": 0.6}), True),
    ],
)
def test_defaults_of_an_engine_that_change_the_draw_are_found(engine, neutral):
    found = found_of(engine)
    assert (found.logprobs_kind, found.neutral) == (engine.kind, neutral)
    asked = SimpleNamespace(capabilities=found, body={"temperature": 1})
    assert _kind(asked, None, found.defaults) == (engine.kind if neutral else "none")
    asked.body |= NEUTRAL  # a request that names all of it does not depend on them
    assert _kind(asked, None, found.defaults) == engine.kind


def test_an_engine_that_says_the_kind_is_believed():
    assert found_of(Engine("tempered", says=True)) == Capabilities(True, "tempered", 1.0, neutral=True)


@pytest.mark.parametrize(("before", "after"), [("tempered", "raw"), ("raw", "tempered")])
def test_an_engine_started_anew_is_asked_anew(before, after):
    """Between two requests, with nobody looking: only the open connection tells."""

    async def run():
        port = free_port()
        async with asking(port) as upstream:
            async with Engine(before).at(port):
                old = await upstream.capabilities("m")
                assert old.logprobs_kind == before
                assert upstream.found.current("m", old) == old
            await until(lambda: not upstream.found)
            async with Engine(after).at(port):
                assert upstream.found.current("m", old) == UNKNOWN  # an answer that was asked for before
                assert (await upstream.capabilities("m")).logprobs_kind == after

    asyncio.run(run())


def test_a_connection_closed_by_a_living_engine_is_opened_again():
    async def run():
        port, engine, opened = free_port(), Engine("raw"), []

        async def forward(reader, writer):
            """A proxy before the engine, which closes the first idle connection after a moment."""
            opened.append(writer)
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
            pumps = [pump(reader, other_writer), pump(other_reader, writer)]
            await asyncio.gather(*pumps)

        async def pump(reader, writer):
            while data := await reader.read(65536):
                writer.write(data)
            writer.close()

        proxy = await asyncio.start_server(forward, "127.0.0.1", 0)
        async with engine.at(port), asking(proxy.sockets[0].getsockname()[1]) as upstream:
            found = await upstream.capabilities("m")
            opened[0].close()  # the first one is the idle one
            count = len(opened)
            await until(lambda: len(opened) > count)
            assert await upstream.capabilities("m") == found
            assert len(engine.asked) == 3
        proxy.close()

    asyncio.run(run())


def test_models_that_were_created_anew_are_asked_anew():
    async def run():
        port, engine = free_port(), Engine("raw")
        async with engine.at(port), asking(port) as upstream:
            await upstream.is_healthy()
            await upstream.capabilities("m")
            await upstream.is_healthy()
            assert upstream.found
            engine.created = 2
            await upstream.is_healthy()
            assert not upstream.found

    asyncio.run(run())


def test_a_clock_for_a_date_says_nothing(monkeypatch):
    """vLLM says the time of the answer."""

    async def run():
        port, engine, now = free_port(), Engine("raw", created=None), [1000.0]
        monkeypatch.setattr("time.time", lambda: now[0])
        async with engine.at(port), asking(port) as upstream:
            await upstream.capabilities("m")
            for _ in range(3):
                now[0] += 60
                assert await upstream.is_healthy()
            assert upstream.found

    asyncio.run(run())


def test_names_that_clients_make_up_are_bounded():
    async def run():
        port, engine = free_port(), Engine("raw", delay=0.01)
        async with engine.at(port), asking(port) as upstream:
            known = await upstream.capabilities("m")
            found = await asyncio.gather(*(upstream.capabilities(f"made up {number}") for number in range(300)))
            assert len({one["model"] for one in engine.asked}) == 30  # in a minute
            assert engine.most <= 4
            assert found.count(UNKNOWN) == 271
            assert await upstream.capabilities("m") == known

    asyncio.run(run())


def test_one_model_is_asked_once_for_many_that_wait():
    async def run():
        port, engine = free_port(), Engine("raw", delay=0.01)
        async with engine.at(port), asking(port) as upstream:
            found = await asyncio.gather(*(upstream.capabilities("m") for _ in range(20)))
            assert len(set(found)) == 1
            assert len(engine.asked) == 3

    asyncio.run(run())


def test_doubt_changes_nothing_until_the_engine_has_answered():
    async def run():
        port, engine = free_port(), Engine("raw")
        async with engine.at(port), asking(port) as upstream:
            found = await upstream.capabilities("m")
            upstream.found.doubt("m")
            assert await upstream.capabilities("m") == found
            assert len(engine.asked) == 3  # it was asked just now

    asyncio.run(run())


@pytest.mark.parametrize(("asked", "recorded"), [(None, 0.6), (1, 1.0), ("0.7", 0.7), (True, 1.0), ("warm", None), ([1], None)])
def test_a_temperature_is_read_as_engines_read_it(asked, recorded):
    """vLLM takes a text for a number; the engine's default is not what was drawn at."""
    assert _temperature(asked, 0.6) == recorded
