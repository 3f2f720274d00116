"""Before an engine on which users have models of their own, a key that has an owner speaks for nobody else."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from clawpipe.core.config.registry import user_digest
from clawpipe.serve.gateway.asking import Asking
from clawpipe.serve.gateway.capabilities import NO_TOKENS
from clawpipe.serve.gateway.chat import Chat
from clawpipe.serve.gateway.exchange import Exchange
from clawpipe.serve.gateway.forms import FORMS
from clawpipe.serve.gateway.keys import key_of
from clawpipe.serve.serving.access import USER

HELLO = {"role": "user", "content": "hello"}


class Engine:
    url = "http://127.0.0.1:1"

    async def capabilities(self, model):
        return NO_TOKENS

    async def ask(self, method, path, body, headers):
        self.headers = headers
        return SimpleNamespace(status=200)


def sent(owner, per_user, **body):
    """Return the recorded user of a request, and the digest that the engine is sent."""
    engine = Engine()
    upstreams = SimpleNamespace(of=lambda place: engine)
    chat = Chat(upstreams, SimpleNamespace(fault=""), None, "refuse", None, per_user)
    exchange = Exchange({"method": "POST", "path": "/v1/chat/completions", "headers": [(USER.encode(), b"forged")]}, None, None)
    key = key_of("laptop", "sk-secret").model_copy(update={"owner": owner})

    async def ask():
        asked = await chat._asked(FORMS[0], exchange, key, {"model": "agent", "messages": [HELLO], **body})
        await Asking(upstreams, None, per_user)._post(asked, asked.body)
        return asked.whose.user, engine.headers.get(USER), json.dumps(asked.request)

    return asyncio.run(ask())


@pytest.mark.parametrize("body", [{}, {"user": "bob"}])
def test_a_key_with_an_owner_speaks_for_its_owner_alone(body):
    user, digest, _ = sent("ann", True, **body)
    assert (user, digest) == ("ann", user_digest("ann"))


def test_a_key_without_an_owner_speaks_for_users_it_names():
    assert sent(None, True, user="bob")[:2] == ("bob", user_digest("bob"))
    assert sent(None, True)[:2] == (None, None)  # nor is a header of the client's own passed on


def test_other_engines_are_told_no_user():
    assert sent("ann", False)[:2] == ("ann", None)
    assert sent("ann", False, user="bob")[0] == "bob"  # as before: the owner is the user of turns that name none
