import pytest

from clawpipe.data.privacy.redact import redactor
from clawpipe.data.privacy.rules import load_rules, rules_of
from clawpipe.errors import ConfigError

OWN = """
without: [ip]
allow: ['.*@acme\\.org']
rules:
  - {name: ticket, why: Ours., secret: 'ACME-[0-9]{4,}'}
"""


def redacted(home, text):
    with redactor(1, rules_of(home)) as redact:
        return redact.texts([text]).texts[0]


def test_a_home_disables_allows_and_adds_rules(tmp_path):
    (tmp_path / "privacy.yaml").write_text(OWN)
    text = "ann@acme.org ann@other.org 93.184.117.134 ACME-12345"
    assert redacted(tmp_path, text) == "ann@acme.org [REDACTED:email] 93.184.117.134 [REDACTED:ticket]"


def test_a_home_without_rules_of_its_own_has_those_that_ship(tmp_path):
    assert rules_of(tmp_path) == load_rules()
    (tmp_path / "privacy.yaml").write_text("")
    assert rules_of(tmp_path) == load_rules()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("without: [ipp]", "there is no rule 'ipp'"),
        ("allow: ['(a)']", "capturing group"),
        ("allow: ['(?=a)']", "is no pattern"),
        ("rules: [{name: x, why: y, secret: 'a*'}]", "may be nothing at all"),
        ("rules: [{name: email, why: y, secret: 'a+'}]", "a rule that ships"),
        ("rules: [{name: x, why: y}]", "Field required"),
        ("allowed: []", "Extra inputs"),
        ("a: [", "cannot be read as YAML"),
    ],
)
def test_wrong_rules_of_a_home_are_one_error(tmp_path, text, said):
    (tmp_path / "privacy.yaml").write_text(text)
    with pytest.raises(ConfigError, match=said) as error:
        rules_of(tmp_path)
    assert str(tmp_path / "privacy.yaml") in error.value.where
