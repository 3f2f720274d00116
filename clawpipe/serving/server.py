"""From a registered model to a listening server."""

from __future__ import annotations

import contextlib
import os
import signal
import socket

import uvicorn

from clawpipe.config.night import Registry
from clawpipe.errors import ConfigError
from clawpipe.policy.spec import policy_spec
from clawpipe.registry.package import restore_adapter, verify_package
from clawpipe.registry.tracking import Tracking
from clawpipe.registry.versions import download
from clawpipe.serving.app import create_app
from clawpipe.serving.policy import Served, ServedPolicy
from clawpipe.store.artifacts import Store
from clawpipe.store.home import Home

KEY_VARIABLE = "CLAWPIPE_API_KEY"
GRACE_SECONDS = 3  # for answers under way when the server is told to stop


def api_key() -> str:
    """The key that clients must send.

    Raises:
        ConfigError: none is set, or one that a header cannot carry.
    """
    key = os.environ.get(KEY_VARIABLE, "")
    if not key:
        fix = f"export {KEY_VARIABLE}=\"$(python -c 'import secrets; print(secrets.token_urlsafe(32))')\""
        raise ConfigError("no key is set, and without one anybody could use the model", KEY_VARIABLE, fix)
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            "the key holds a space, a control character or a letter that is not ASCII", KEY_VARIABLE, "use another one"
        )
    return key


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, before minutes go into loading a model.

    Raises:
        ConfigError: the address is taken or not ours.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ConfigError(f"cannot listen: {error.strerror}", f"{host}:{port}", "choose another --port or --host") from None


def find(home: Home, uri: str) -> Served:
    """The model version that `uri` names, downloaded, checked byte by byte, its adapter in the store.

    Raises:
        ConfigError, NotFoundError: no such version.
        DataError: its files, or the base that it stands on, are not those that were evaluated.
    """
    directory, info = download(Tracking.of(home, Registry().model_name), uri)  # the name that counts is the one in `uri`
    package = verify_package(directory)
    store = Store(home.store)
    policy = restore_adapter(store, directory)
    return Served(info.name, info.version, policy.digest, policy_spec(store, policy), package.tools, package.preamble)


def serve(policy: ServedPolicy, key: str, listener: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C, then let answers under way end for a few seconds."""
    config = uvicorn.Config(create_app(policy, key), ws="none", server_header=False, timeout_graceful_shutdown=GRACE_SECONDS)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn ends with the signal that it got; a stop is no crash
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run([listener])
