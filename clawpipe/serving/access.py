"""Who can reach the server: its address and its key. Loads nothing, so that a mistake shows at once."""

from __future__ import annotations

import os
import socket

from clawpipe.errors import ConfigError

KEY_VARIABLE = "CLAWPIPE_API_KEY"


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
