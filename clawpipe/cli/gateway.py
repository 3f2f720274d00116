"""`clawpipe gateway`: a proxy before an engine that captures every turn."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.serve import BaseOption, FormatOption, HostOption, SessionOption, ShadowOption, ShareOption
from clawpipe.messages import ToolCallFormat

if TYPE_CHECKING:
    from clawpipe.gateway.keys import Key
    from clawpipe.serving.found import Alias
    from clawpipe.store.home import Home

_LOAD_SECONDS = 900.0  # for a large model from a slow disk
UpstreamOption = Annotated[
    str, typer.Option(metavar="URL", help="The engine, such as http://HOST:8000/v1, or a YAML file that lists several.")
]
_FOLLOW_HELP = "NAME@champion, which is followed: the version that it names answers, as an adapter of the engine."
FollowedArgument = Annotated[str | None, typer.Argument(metavar="MODEL", help=_FOLLOW_HELP)]
GatewayPortOption = Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)]

AtOnceOption = Annotated[int, typer.Option(help="Requests that are answered at a time; more are told to come back.", min=1)]


class WhenFull(StrEnum):
    """What the gateway does while it cannot capture turns: refuse requests, or answer them without capture."""

    refuse = "refuse"
    serve = "serve"


WhenFullOption = Annotated[
    WhenFull, typer.Option(help="While turns cannot be written: refuse requests with 503, or serve them uncaptured.")
]


def gateway(
    upstream: UpstreamOption,
    model: FollowedArgument = None,
    port: GatewayPortOption = 8100,
    host: HostOption = "127.0.0.1",
    when_full: WhenFullOption = WhenFull.refuse,
    at_once: AtOnceOption = 256,
    session_seconds: SessionOption = 3600.0,
    canary_share: ShareOption = 1.0,
    shadow_share: ShadowOption = 0.0,
    base: BaseOption = None,
    tool_call_format: FormatOption = None,
) -> None:
    """Run a proxy before an OpenAI-compatible engine, and capture every turn until Ctrl-C.

    Point your agent at the gateway instead of the engine; nothing else changes. Clients must send a key: one of `clawpipe keys`, or
    the one in $CLAWPIPE_API_KEY. The engine is asked with the key in $CLAWPIPE_UPSTREAM_KEY, if it is set.

    With NAME@champion, requests for the model NAME are answered by the version that the alias names: vLLM loads its adapter within
    seconds of a promotion, new sessions get it, and a bad version goes back by itself, as `clawpipe serve` does it.
    """
    from clawpipe.gateway.adapters import Following
    from clawpipe.gateway.clients import Clients
    from clawpipe.gateway.server import serve
    from clawpipe.gateway.upstreams import Upstreams
    from clawpipe.registry.names import version_uri
    from clawpipe.serving.access import listen
    from clawpipe.store.home import Home

    home = Home.from_env()
    engines = Upstreams.named(upstream, os.environ.get("CLAWPIPE_UPSTREAM_KEY", ""))
    clients = Clients(home, _more_keys(home, host), at_once)
    listener = listen(host, port)
    typer.echo(f"{engines} behind {_address(host, listener)}, captured in {home.root / 'captured'}")
    following = None
    if model:
        followed = _followed(home, version_uri(model), base, tool_call_format)
        following = Following(*followed, engines, (canary_share, shadow_share), session_seconds)
    serve(home, engines, clients, listener, when_full.value, following)


def _followed(home: Home, uri: str, base: str | None, tool_call_format: ToolCallFormat | None) -> tuple[str, Alias]:
    """Return the model name that clients send, and the alias that the gateway follows. Raises ConfigError if `uri` is no alias."""
    from clawpipe.cli.serve import alias_of
    from clawpipe.errors import ConfigError

    if not uri.startswith("models:/") or "@" not in uri:
        raise ConfigError(f"{uri!r} is no alias", "MODEL", "such as clawpipe-agent@champion")
    return uri.removeprefix("models:/").partition("@")[0], alias_of(home, uri, base, tool_call_format)


def serve_captured(words: Sequence[str], host: str, port: int, per_user: bool = False) -> None:
    """Run `clawpipe serve` with these words on a port of its own, with a key that nobody else knows, behind a gateway.

    `per_user`: whether users may have models of their own, see `clawpipe.gateway.chat.Chat`.
    """
    from clawpipe.errors import BusyError
    from clawpipe.gateway.clients import Clients
    from clawpipe.gateway.server import serve
    from clawpipe.gateway.upstreams import Upstreams
    from clawpipe.ports import LOOPBACK, free_port
    from clawpipe.registry.names import version_name
    from clawpipe.reporting.terminal import waiting
    from clawpipe.services.keeper import Keeper
    from clawpipe.services.service import started
    from clawpipe.serving.access import BEHIND_VARIABLE, KEY_VARIABLE, listen
    from clawpipe.store.home import Home

    home, own = Home.from_env(), free_port()
    clients, listener = Clients(home, _more_keys(home, host)), listen(host, port)
    key, url = secrets.token_urlsafe(32), f"http://{LOOPBACK}:{own}"
    command = [sys.executable, "-m", "clawpipe", "serve", *words, "--port", str(own)]
    log = home.logs / "serve.log"
    start = partial(started, "the engine", command, log, {KEY_VARIABLE: key, BEHIND_VARIABLE: "1"})
    tell, give_up = partial(typer.echo, err=True), partial(os.kill, os.getpid(), signal.SIGTERM)
    with Keeper(start(), start, tell, give_up) as engine:
        with waiting(f"loading {version_name(words[0])}; its log is {log}"):
            engine.service.wait_healthy(f"{url}/healthz", _LOAD_SECONDS)
        typer.echo(f"{version_name(words[0])} at {_address(host, listener)}, captured in {home.root / 'captured'}")
        serve(home, Upstreams.named(url, key), clients, listener, per_user=per_user)
    if engine.gave_up:
        raise BusyError("the engine ends again and again", str(log), "its log says why; a smaller model needs less memory")


def serve_vllm(
    model: str,
    base: tuple[str | None, ToolCallFormat | None],
    python: str,
    arguments: Sequence[str],
    host: str,
    port: int,
    shares: tuple[float, float],
    session_seconds: float,
) -> None:
    """Start vLLM with the base of an alias's version, behind a gateway that follows the alias, and end it with the gateway."""
    from clawpipe.config.engine import EngineSpec
    from clawpipe.gateway.adapters import Following
    from clawpipe.gateway.clients import Clients
    from clawpipe.gateway.server import serve
    from clawpipe.gateway.upstreams import Upstreams
    from clawpipe.serving.access import listen
    from clawpipe.store.home import Home
    from clawpipe.workers.vllm_server import VllmServer, chat_arguments

    home = Home.from_env()
    name, alias = _followed(home, model, *base)
    clients, listener = Clients(home, _more_keys(home, host)), listen(host, port)
    spec, server = alias.find(alias.version()).spec, VllmServer(home.logs)
    typer.echo(f"starting vLLM, which takes minutes; its log is {home.logs / 'vllm.log'}")
    try:
        words = (*chat_arguments(spec.tool_call_format), *arguments)
        [url] = server.place(EngineSpec(name="vllm", python=python, arguments=words), spec).url
        engines = Upstreams.named(url, server.key)
        typer.echo(f"{model} at {_address(host, listener)}, captured in {home.root / 'captured'}")
        serve(home, engines, clients, listener, following=Following(name, alias, engines, shares, session_seconds))
    finally:
        server.stop()


def _address(host: str, listener: socket.socket) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/v1"


def _more_keys(home: Home, host: str) -> list[Key]:
    """Return the key in the environment as one without limits. Without it, the home must have keys."""
    from clawpipe.errors import ConfigError
    from clawpipe.gateway.keys import key_of, read_keys
    from clawpipe.serving.access import KEY_VARIABLE, api_key

    if os.environ.get(KEY_VARIABLE):
        return [key_of("default", api_key(host))]
    if not any(not key.revoked for key in read_keys(home)):
        fix = f"`clawpipe keys make NAME` makes one, or set {KEY_VARIABLE}"
        raise ConfigError("no key is known, and without one anybody could use the engine", "gateway", fix)
    return []
