"""Queries for one user's rows by a digest, so that neither settings nor logs hold the name."""

import pyarrow as pa

from clawpipe.core.config.registry import user_digest
from clawpipe.data.ingest.query import parse_query

ROWS = pa.table({"user_id": ["ann", "bob", None, "rock and roll", 'O\'Brien "x"', "ann"]})


def kept(text):
    [condition] = parse_query(text).conditions
    return condition.holds(ROWS).to_pylist()


def test_a_digest_selects_its_users_rows_alone():
    assert kept(f"user = sha256:{user_digest('ann')}") == [True, False, False, False, False, True]
    assert kept(f"user != sha256:{user_digest('ann')}") == [False, True, True, True, True, False]
    assert kept(f"user = sha256:{user_digest('rock and roll')}") == [False, False, False, True, False, False]
    assert kept(f"user = sha256:{user_digest(ROWS['user_id'][4].as_py())}") == [False, False, False, False, True, False]


def test_a_name_is_still_a_name():
    assert kept("user = ann") == [True, False, False, False, False, True]
    assert kept("user = sha256:unknown") == [False] * 6
    assert kept('user = "rock and roll"') == [False, False, False, True, False, False]


def test_quotes_belong_to_no_value_but_those_in_it():
    texts = ["user = \"rock and roll\" and source = 'and'", "user = \"O'Brien'\"", "user = '\"x\"'"]
    said = [[condition.value for condition in parse_query(text).conditions] for text in texts]
    assert said == [["rock and roll", "and"], ["O'Brien'"], ['"x"']]
