"""`clawpipe chat`: talk to a model in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import httpx

    from clawpipe.core.store.home import Home

_LOAD_SECONDS = 600.0
_NAMED = "NAME@champion, NAME@3, or a base model; without one, the version that was registered last."

_BESIDE = "Let another model answer beside it; base: the one that it learned from."
BesideOption = Annotated[str | None, typer.Option("--beside", metavar="MODEL", help=_BESIDE)]


def chat(
    model: Annotated[str | None, typer.Argument(help=_NAMED)] = None,
    beside: BesideOption = None,
    environment: Annotated[
        str | None, typer.Option("--environment", metavar="NAME", help="Run its tools in this environment, not in its own.")
    ] = None,
) -> None:
    """Talk to a registered version, or to a base model, with its tools.

    The tools run in the environment that the version was trained in, if its name alone says how to make it; else you are asked for
    their results. What you say is captured in the home, like `clawpipe serve --capture` does, and /good and /bad are stored with
    it: `clawpipe ingest` reads both, so a night may learn from them.
    """
    from clawpipe.core.store.home import Home
    from clawpipe.start.talking.bench import bench_of
    from clawpipe.start.talking.line import Line, card_of
    from clawpipe.start.talking.terminal import HELP, Speaker, Talk, asked_by_hand

    home = Home.from_env()
    names = _models(home, model, beside)
    with ExitStack() as stack:
        clients = [stack.enter_context(_served(home, name, captured=not number)) for number, name in enumerate(names)]
        cards = [card_of(client) for client in clients]
        place = environment or cards[0].environment
        benches = [stack.enter_context(bench_of(place, asked_by_hand, asked_for=environment is not None)) for _ in clients]
        lines = [Line(client, card, cards[0].tools, cards[0].preamble) for client, card in zip(clients, cards, strict=True)]
        for line in lines:
            stack.callback(line.end)
        talk = Talk([Speaker(*one) for one in zip(lines, benches, strict=True)], _write)
        typer.echo(HELP)
        while (text := _written()) is not None and talk.hear(text):
            pass


def _models(home: Home, model: str | None, beside: str | None) -> list[str]:
    """Return the models that answer, as `clawpipe serve` takes them."""
    from clawpipe.errors import NotFoundError
    from clawpipe.record.registry.listing import list_versions
    from clawpipe.record.registry.names import version_uri
    from clawpipe.record.registry.tracking import Tracking
    from clawpipe.record.registry.versions import resolve

    tracking = Tracking.of(home, "none")
    if model is None:
        newest = list_versions(tracking, limit=1)
        if not newest:
            raise NotFoundError("no version is registered yet", str(home.root), "name a base model, e.g. smollm2-135m-instruct")
        model = f"{newest[0].model}@{newest[0].version}"
    uri = version_uri(model)
    if beside == "base":
        beside = resolve(tracking, uri).policy.base_name if uri.startswith("models:/") else None
    return [uri, *([version_uri(beside)] if beside else [])]


@contextmanager
def _served(home: Home, model: str, captured: bool) -> Iterator[httpx.Client]:
    """Serve a model on a port of its own as long as the block lasts; yield a client of it."""
    import secrets

    import httpx

    from clawpipe.core.services.service import running
    from clawpipe.core.system.ports import LOOPBACK, free_port
    from clawpipe.record.registry.names import version_name
    from clawpipe.record.reporting.terminal import waiting
    from clawpipe.serve.serving.access import KEY_VARIABLE

    key, url = secrets.token_urlsafe(32), f"http://{LOOPBACK}:{free_port()}"
    command = [sys.executable, "-m", "clawpipe", "serve", model, "--port", url.rpartition(":")[2]]
    command += ["--capture"] if captured else []
    with running("the model's server", command, home.logs / "chat.log", {KEY_VARIABLE: key}) as server:
        with waiting(f"loading {version_name(model)}"):
            server.wait_healthy(f"{url}/healthz", _LOAD_SECONDS)
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=300.0, trust_env=False) as client:
            yield client


def _written() -> str | None:
    """Return the next line that the person writes; None at the end of the input."""
    try:
        return input("you> ")
    except EOFError:
        typer.echo("")
        return None


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
