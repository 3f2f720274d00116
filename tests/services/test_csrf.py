"""Of two commands at once that ask one Prefect server, neither takes the other's token away."""

from __future__ import annotations

import httpx
import pytest

from clawpipe.core.services.csrf import with_token


class Server:
    """A server that knows the last token of each client's name, as Prefect's does."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            name = request.url.params["client"]
            self.tokens[name] = f"{len(self.tokens)}-{self.tokens.get(name, '')}x"
            return httpx.Response(200, json={"token": self.tokens[name]})
        known = self.tokens.get(request.headers.get("prefect-csrf-client", ""))
        return httpx.Response(200 if known and known == request.headers["prefect-csrf-token"] else 403)


def client(server) -> httpx.Client:
    return httpx.Client(base_url="http://prefect", transport=httpx.MockTransport(server))


def test_two_clients_ask_at_once():
    server = Server()
    with client(server) as one, client(server) as other:
        with_token(one)
        with_token(other)
        assert [each.post("/flow_runs/filter").status_code for each in (one, other)] == [200, 200]


def test_a_server_without_tokens_needs_none():
    with client(lambda request: httpx.Response(422)) as asked:
        with_token(asked)
        assert "prefect-csrf-token" not in asked.headers


def test_a_wrong_secret_is_an_error():
    with client(lambda request: httpx.Response(401)) as asked, pytest.raises(httpx.HTTPStatusError):
        with_token(asked)
