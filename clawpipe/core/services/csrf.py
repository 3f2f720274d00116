"""Tokens by which Prefect's server tells its clients from forged requests."""

from __future__ import annotations

import uuid

import httpx


def with_token(client: httpx.Client) -> None:
    """Let a client send requests other than GET. A server without this protection, which says 422, needs no token.

    A new token takes the place of the old one of the same client's name, so each client has a name of its own: else of two commands
    at once one would be refused.

    Raises:
        httpx.HTTPError: the server does not answer, or does not know the secret.
    """
    name = f"clawpipe-{uuid.uuid4().hex}"
    reply = client.get("/csrf-token", params={"client": name})
    if reply.status_code != int(httpx.codes.UNPROCESSABLE_ENTITY):
        client.headers.update({"Prefect-Csrf-Client": name, "Prefect-Csrf-Token": reply.raise_for_status().json()["token"]})
