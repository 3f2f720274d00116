"""A home's `sessions.yaml`."""

from __future__ import annotations

import pytest

from clawpipe.data.capture.settings import PLAIN, session_settings
from clawpipe.errors import ConfigError

OWN = """
idle_seconds: 90
main_types: [Main, chat]
side_beginnings: ["[Nightly report]", "status?"]
"""


def test_a_home_without_the_file_has_the_defaults(tmp_path):
    assert session_settings(tmp_path) == PLAIN
    assert (PLAIN.idle_seconds, PLAIN.is_main(" MAIN "), PLAIN.is_main("chat"), PLAIN.is_side("status?")) == (
        3600,
        True,
        False,
        False,
    )


def test_an_empty_file_changes_nothing(tmp_path):
    (tmp_path / "sessions.yaml").write_text("# later\n")
    assert session_settings(tmp_path) == PLAIN


def test_a_home_says_what_ends_and_what_is_main(tmp_path):
    (tmp_path / "sessions.yaml").write_text(OWN)
    own = session_settings(tmp_path)
    assert own.idle_seconds == 90
    assert [own.is_main(name) for name in ("main", "Chat", "cron", "")] == [True, True, False, False]
    texts = ("[nightly REPORT] 3 mails", "\n status? now", "my status?", "")
    assert [own.is_side(text) for text in texts] == [True, True, False, False]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("idle_seconds: 0", "idle_seconds", "greater than 0"),
        ("idle_seconds: .nan", "idle_seconds", "finite"),
        ("idle: 60", "idle", "not permitted"),
        ("side_beginnings: ['']", "side_beginnings.0", "match pattern"),
        ("side_beginnings: ['  ']", "side_beginnings.0", "match pattern"),  # which every message begins with
        ("side_beginnings: hello", "side_beginnings", "tuple"),
        ("[1, 2", "", "cannot be read as YAML"),
    ],
)
def test_a_wrong_file_is_one_line_with_its_place(tmp_path, text, place, message):
    (tmp_path / "sessions.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message) as refused:
        session_settings(tmp_path)
    assert str(tmp_path / "sessions.yaml") in refused.value.where
    assert refused.value.where.endswith(place)
    assert "\n" not in refused.value.what
