"""Access to the model server: its address and its key. Imports nothing heavy, so that a mistake shows at once."""

from __future__ import annotations

import ipaddress
import os
import socket

from clawpipe.errors import ConfigError

KEY_VARIABLE = "CLAWPIPE_API_KEY"
BEHIND_VARIABLE = "CLAWPIPE_BEHIND_GATEWAY"  # set where a gateway alone has the server's key, so that its header may be believed:
CLIENT = "x-clawpipe-client"  # a digest of the name of the client's key
USER = "x-clawpipe-user"  # a digest of the user, where users may have models of their own
_PUBLIC_LENGTH = 16  # least characters of a key that other machines could try to guess
_NEW_KEY = f"export {KEY_VARIABLE}=\"$(python -c 'import secrets; print(secrets.token_urlsafe(32))')\""


def api_key(host: str) -> str:
    """Return the key that clients must send to a server that listens on `host`.

    Raises:
        ConfigError: no key is set, a header cannot carry it, or it is too short for a server that other machines can reach.
    """
    key = os.environ.get(KEY_VARIABLE, "")
    if not key:
        raise ConfigError("no key is set, and without one anybody could use the model", KEY_VARIABLE, _NEW_KEY)
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            "the key holds a space, a control character or a letter that is not ASCII", KEY_VARIABLE, "use another one"
        )
    if len(key) < _PUBLIC_LENGTH and not is_loopback(host):
        what = f"the key has fewer than {_PUBLIC_LENGTH} characters, and other machines can reach the server at {host!r}"
        raise ConfigError(what, KEY_VARIABLE, _NEW_KEY)
    return key


def keys_of(authorization: str, api_key: str) -> list[str]:
    """Return the keys that a request sends: OpenAI's clients as a bearer token, Anthropic's in `x-api-key`, some in both."""
    scheme, _, bearer = authorization.partition(" ")
    given = [bearer.strip() if scheme.lower() == "bearer" else "", api_key.strip()]
    return [key for key in given if key]


def is_behind_gateway() -> bool:
    """Return whether a gateway alone has the server's key."""
    return bool(os.environ.get(BEHIND_VARIABLE))


def listen(host: str, port: int) -> socket.socket:
    """Return a bound socket, before minutes go into loading a model.

    Raises:
        ConfigError: the address is taken, or not of this machine.
    """
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ConfigError(f"cannot listen: {error.strerror}", f"{host}:{port}", "choose another --port or --host") from None
    # Its connections inherit this. asyncio sets it only for sockets whose protocol was named, and without it the second part of an
    # answer waits for the client's acknowledgement of the first: 40 ms for each request on a connection that is kept.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address that a server listens on."""
    try:
        addresses = [info[4][0] for info in socket.getaddrinfo(host, None)] if host else []  # "": all addresses
    except OSError:
        return False
    return bool(addresses) and all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in addresses)
