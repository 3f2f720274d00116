"""Copies of held-out conversations that open with few words, and went on in another file."""

import pytest

from clawpipe.learn.evaluation.heldout.conversations import item_of

HELD = [
    ("user", "fix it"),
    ("assistant", "What should I fix in the project?"),
    ("user", "The redirect loop on the login page in auth.py after the session expires"),
    ("assistant", "The cookie was cleared before the redirect; I moved the call below it."),
]
MORE = [("user", "thanks, now add a test"), ("assistant", "Added tests/test_auth.py.")]
OTHER = [("user", "The logo"), ("assistant", "The logo is centred now.")]


@pytest.fixture
def curated(tables, say):
    """`curated(held, *rows)`: the rows that a night keeps which holds a conversation out, and why not the others."""

    def kept(held, *rows):
        owner = {"session_id": "s", "user_id": None, "item_id": "i", "origin": None}
        item = item_of("h", owner, [say(*one) for one in held], 0)
        tables.item("h", item.messages[-1].content, split="heldout", identity=item.identity)
        tables.items[-1] |= {"environment": item.environment, "truth": item.truth}
        for index, row in enumerate(rows):
            tables.rollout("a", index, 1.0, messages=[say(*one) for one in row])
        result = tables.curate("sft")
        return tables.kept(result), result.filtered

    return kept


def test_a_copy_that_went_on_is_left_out(curated):
    behind_a_system_message = [("system", "Be brief."), *HELD, *MORE]
    rows = [[*HELD, *MORE], behind_a_system_message, [*HELD[:2], *OTHER], HELD[:2], [*OTHER, *HELD]]
    assert curated(HELD, *rows) == (["a-2", "a-3", "a-4"], {"held-out conversation": 2})


def test_a_copy_as_a_client_logs_it_is_left_out(curated):
    """With other spaces and marks at the ends, and an empty message."""
    logged = [("user", " Fix  it!"), HELD[1], ("assistant", ""), *HELD[2:], *MORE]
    assert curated(HELD, logged)[1] == {"held-out conversation": 1}


def test_a_greeting_alone_is_no_conversation_that_goes_on(curated):
    """Whoever says hi is greeted: every chat that begins so would be lost."""
    greeted = [("user", "hi"), ("assistant", "Hello! How can I help you?")]
    assert curated(greeted, [*greeted, *MORE], greeted) == (["a-0"], {"held-out conversation": 1})
