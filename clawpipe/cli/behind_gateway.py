"""Models behind a gateway, which captures their turns: those that `clawpipe serve` starts, and the alias that a gateway follows."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import typer

from clawpipe.core.conversation.messages import ToolCallFormat

if TYPE_CHECKING:
    from clawpipe.core.services.service import Service
    from clawpipe.core.store.home import Home
    from clawpipe.serve.gateway.keys import Key
    from clawpipe.serve.serving.found import Alias

_REGISTERED = "models:/"
_LOAD_SECONDS = 900.0  # for a large model from a slow disk


def alias_of(home: Home, model: str, base: str | None, tool_call_format: ToolCallFormat | None) -> Alias:
    """Return the alias that is named, with the base model that is served under its name as long as it names no version.

    Raises:
        ConfigError: a format of tool calls is given where there is no base model.
        NotFoundError: there is no such base model.
    """
    from clawpipe.errors import ConfigError
    from clawpipe.serve.serving.found import Alias, find_base

    if tool_call_format and not base:
        raise ConfigError("a registered model has its own format of tool calls", "--tool-call-format", "leave it out")
    name = model.removeprefix(_REGISTERED).partition("@")[0]  # clients need not ask for another one after the first promotion
    return Alias(home, model, replace(find_base(base, tool_call_format or "pythonic"), name=name) if base else None)


def followed(home: Home, uri: str, base: str | None, tool_call_format: ToolCallFormat | None) -> tuple[str, Alias]:
    """Return the model name that clients send, and the alias that the gateway follows. Raises ConfigError if `uri` is no alias."""
    from clawpipe.errors import ConfigError

    if not uri.startswith(_REGISTERED) or "@" not in uri:
        raise ConfigError(f"{uri!r} is no alias", "MODEL", "such as clawpipe-agent@champion")
    return uri.removeprefix(_REGISTERED).partition("@")[0], alias_of(home, uri, base, tool_call_format)


def serve_captured(words: Sequence[str], host: str, port: int, per_user: bool = False) -> None:
    """Run `clawpipe serve` with these words on a port of its own, with a key that nobody else knows, behind a gateway.

    `per_user`: whether users may have models of their own, see `clawpipe.serve.gateway.chat.Chat`.
    """
    from clawpipe.core.services.keeper import Keeper
    from clawpipe.core.services.service import started
    from clawpipe.core.store.home import Home
    from clawpipe.core.system.ports import LOOPBACK, free_port
    from clawpipe.errors import BusyError
    from clawpipe.record.registry.names import version_name
    from clawpipe.record.reporting.terminal import waiting
    from clawpipe.serve.gateway.clients import Clients
    from clawpipe.serve.gateway.server import serve
    from clawpipe.serve.gateway.upstreams import Upstreams
    from clawpipe.serve.serving.access import BEHIND_VARIABLE, KEY_VARIABLE, listen

    home, own = Home.from_env(), free_port()
    clients, listener = Clients(home, more_keys(home, host)), listen(host, port)
    key, url = secrets.token_urlsafe(32), f"http://{LOOPBACK}:{own}"
    command = [sys.executable, "-m", "clawpipe", "serve", *words, "--port", str(own)]
    log = home.logs / "serve.log"
    start = partial(started, "the engine", command, log, {KEY_VARIABLE: key, BEHIND_VARIABLE: "1"})
    tell, give_up = partial(typer.echo, err=True), partial(os.kill, os.getpid(), signal.SIGTERM)
    with waiting(f"loading {version_name(words[0])}; its log is {log}"):
        loaded = _healthy(start(), f"{url}/healthz")  # what ends while it loads would end again
    with Keeper(loaded, start, tell, give_up) as engine:
        typer.echo(f"{version_name(words[0])} at {address_of(host, listener)}, captured in {home.root / 'captured'}")
        serve(home, Upstreams.named(url, key), clients, listener, per_user=per_user)
    if engine.gave_up:
        raise BusyError("the engine ends again and again", str(log), "its log says why; a smaller model needs less memory")


def _healthy(service: Service, url: str) -> Service:
    """Return the service when it answers; end it if it does not."""
    from clawpipe.core.system import processes

    try:
        service.wait_healthy(url, _LOAD_SECONDS)
    except BaseException:
        processes.stop(service.process)
        raise
    return service


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
    from clawpipe.core.config.engine import EngineSpec
    from clawpipe.core.store.home import Home
    from clawpipe.play.workers.vllm_server import VllmServer, chat_arguments
    from clawpipe.serve.gateway.adapters import Following
    from clawpipe.serve.gateway.clients import Clients
    from clawpipe.serve.gateway.server import serve
    from clawpipe.serve.gateway.upstreams import Upstreams
    from clawpipe.serve.serving.access import listen

    home = Home.from_env()
    name, alias = followed(home, model, *base)
    clients, listener = Clients(home, more_keys(home, host)), listen(host, port)
    spec, server = alias.find(alias.version()).spec, VllmServer(home.logs)
    typer.echo(f"starting vLLM, which takes minutes; its log is {home.logs / 'vllm.log'}")
    try:
        words = (*chat_arguments(spec.tool_call_format), *arguments)
        [url] = server.place(EngineSpec(name="vllm", python=python, arguments=words), spec).url
        engines = Upstreams.named(url, server.key)
        typer.echo(f"{model} at {address_of(host, listener)}, captured in {home.root / 'captured'}")
        serve(home, engines, clients, listener, following=Following(name, alias, engines, shares, session_seconds))
    finally:
        server.stop()


def address_of(host: str, listener: socket.socket) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/v1"


def more_keys(home: Home, host: str) -> list[Key]:
    """Return the key in the environment as one without limits. Without it, the home must have keys."""
    from clawpipe.errors import ConfigError
    from clawpipe.serve.gateway.keys import key_of, read_keys
    from clawpipe.serve.serving.access import KEY_VARIABLE, api_key

    if os.environ.get(KEY_VARIABLE):
        return [key_of("default", api_key(host))]
    if not any(not key.revoked for key in read_keys(home)):
        fix = f"`clawpipe keys make NAME` makes one, or set {KEY_VARIABLE}"
        raise ConfigError("no key is known, and without one anybody could use the engine", "gateway", fix)
    return []
