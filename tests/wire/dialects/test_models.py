"""Lists of models for Anthropic's clients, read by its own types."""

from __future__ import annotations

import pytest
from anthropic.types import ModelInfo

from clawpipe.data.wire.dialects.models import in_form

OURS = {"anthropic-version": "2023-06-01"}
CARD = {"id": "agent", "object": "model", "created": 0, "owned_by": "me", "max_model_len": 4096}


def test_each_client_gets_its_own_form():
    body = {"object": "list", "data": [CARD, {"object": "model"}]}
    assert in_form(body, {}) is body
    listed = in_form(body, OURS)
    assert [one["id"] for one in listed["data"]] == ["agent"]  # a model without a name is none
    assert ModelInfo.model_validate(listed["data"][0]).max_input_tokens == 4096
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("agent", "agent", False)


@pytest.mark.parametrize("body", [{}, {"error": "none"}, {"id": None}, {"type": "model", "id": "x"}])
def test_what_is_no_card_of_openai_stays_as_it_is(body):
    assert in_form(body, OURS) is body
