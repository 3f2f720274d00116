import json
import math
import random
import re
import sysconfig
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.data.privacy.finders import FINDERS
from clawpipe.data.privacy.plain import plain, spliced
from clawpipe.data.privacy.redact import redact_texts, redactor
from clawpipe.data.privacy.rules import load_rules

NAMED = (  # known by what stands before them; `benchmarks/redaction_list.py` has them all
    "key-data", "url-password", "url-user", "url-signature", "webhook", "storage-key", "cookie", "bearer-token", "password",
    "kaggle-key", "elastic-key", "password-option", "password-of-a-command", "token", "one-time-password",
    "password-said", "password-word", "password-foreign", "password-quoted", "passphrase", "login", "key-said", "seed-phrase",
    "password-line", "password-used", "password-with-spaces", "one-time-code",
)  # fmt: skip
SHAPED = [rule.name for rule in load_rules() if rule.name not in NAMED]
AROUND = ["{}", "see {} please", 'key="{}"', "({})", "line\\n{}\\nlast", "tab\t{}\n", '{{"a": "{}"}}', "<{}>", "'{}',", "is {}."]


@pytest.fixture(scope="module")
def redact():
    with redactor(1) as found:
        yield found


def luhn(text):
    digits = [int(c) for c in text if c.isdigit()][::-1]
    return sum(d if i % 2 == 0 else sum(divmod(2 * d, 10)) for i, d in enumerate(digits)) % 10 == 0


def iban(text):
    text = text.replace(" ", "")
    return int("".join(str(int(c, 36)) for c in text[4:] + text[:4])) % 97 == 1


def drawn(text):
    shares = [text.count(letter) / len(text) for letter in set(text)]
    return -sum(share * math.log2(share) for share in shares) > 3.3


def by_the_standard_library(text):
    """The same rules by Python's `re`: an implementation of its own."""
    counts = Counter()
    for rule in load_rules():
        if rule.finder:
            for start, end in reversed(list(FINDERS[rule.finder](text))):
                counts[rule.name] += 1
                text = text[:start] + rule.placeholder + text[end:]
            continue

        def hide(match, rule=rule):
            stays = rule.unless and re.fullmatch(rule.unless, match[2], re.ASCII)
            if stays or (rule.check and not {"luhn": luhn, "iban": iban, "random": drawn}[rule.check](match[2])):
                return match[0]
            counts[rule.name] += 1
            return match[1] + rule.placeholder + match[3]

        text = re.sub(rule.pattern, hide, text, flags=re.ASCII)
    return text, counts


@pytest.mark.parametrize("name", SHAPED)
def test_a_secret_is_hidden_wherever_it_stands(redact, make_secret, name):
    secrets = [make_secret(name, seed) for seed in range(30)]
    texts = [around.format(secret) for secret in secrets for around in AROUND]
    found = redact.texts(texts)
    assert found.texts == [around.format(f"[REDACTED:{name}]") for _ in secrets for around in AROUND]
    assert found.found == {name: len(texts)}
    assert all(found.changed)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("postgres://bot:{}@db.internal:5432/x", "postgres://bot:[REDACTED:url-password]@db.internal:5432/x"),
        ("redis://:{}@cache", "redis://:[REDACTED:url-password]@cache"),
        ("Authorization: Bearer {}", "Authorization: Bearer [REDACTED:bearer-token]"),
        ('-H "authorization: basic {}"', '-H "authorization: basic [REDACTED:bearer-token]"'),
        ('password = "{}"', 'password = "[REDACTED:password]"'),
        ("export DB_PASSWORD={}", "export DB_PASSWORD=[REDACTED:password]"),
        ('{{"api_key": "{}", "n": 1}}', '{{"api_key": "[REDACTED:password]", "n": 1}}'),
        ('"{{\\"client_secret\\": \\"{}\\"}}"', '"{{\\"client_secret\\": \\"[REDACTED:password]\\"}}"'),
        ("auth-token: '{}'", "auth-token: '[REDACTED:password]'"),
        ('{{"dbPassword": "{}"}}', '{{"dbPassword": "[REDACTED:password]"}}'),
        ("PGPASSWORD={} psql -h db", "PGPASSWORD=[REDACTED:password] psql -h db"),
        ("mysql --password {} shop", "mysql --password [REDACTED:password-option] shop"),
        ("curl -u bot:{} https://ci", "curl -u bot:[REDACTED:password-of-a-command] https://ci"),
        ("a\\nTOKEN={}", "a\\nTOKEN=[REDACTED:token]"),
        ("Cookie: a=b; sid={}; c=d\nHost: x", "Cookie: [REDACTED:cookie]\nHost: x"),
        ("https://x.org/f?expires=1&sig={}&a=b", "https://x.org/f?expires=1&sig=[REDACTED:url-signature]&a=b"),
        ("Authorization: ApiKey {}", "Authorization: ApiKey [REDACTED:bearer-token]"),
        ("Authorization: SSWS {}", "Authorization: SSWS [REDACTED:bearer-token]"),
        ("ngrok config add-authtoken {}", "ngrok config add-authtoken [REDACTED:password-of-a-command]"),
        ("ecctl --api-key a/{} list", "ecctl --api-key [REDACTED:password-option] list"),
        ('"api_key": "k", "encoded": "{}"', '"api_key": "k", "encoded": "[REDACTED:elastic-key]"'),
        ("git clone https://{}@github.com/a/b", "git clone https://[REDACTED:url-user]@github.com/a/b"),
    ],
)
def test_a_secret_is_known_by_what_it_is_given_to(redact, text, hidden):
    draw = random.Random(text)
    value = "".join(draw.choices("abcdefghjkmnpqrstuvwxyz", k=12)) + "7Q" + "".join(draw.choices("abcdefghjk", k=6))
    assert redact.texts([text.format(value)]).texts == [hidden.replace("{{", "{").replace("}}", "}")]


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ('{"username":"ann","key":"' + "0a1b2c3d" * 4 + '"}', '{"username":"ann","key":"[REDACTED:kaggle-key]"}'),
        ("bot 123456789:" + "Ab3" * 11 + "c- here", "bot [REDACTED:chat-bot-token] here"),
        ("A3-" + "AB12CD-" * 2 + "EF34G-" * 3 + "HI56J, and", "[REDACTED:newer-key], and"),
    ],
)
def test_keys_of_one_place(redact, text, hidden):
    assert redact.texts([text]).texts == [hidden]


@pytest.mark.parametrize(
    "text",
    [
        "password = getpass.getpass()",
        "hf_AutoModelForCausalLM and hf_" + "snake" * 8,
        "password: str | None = None",
        'api_key=os.environ["API_KEY"]',
        "token = self._next_token1",
        'input("Password: ")',
        "secret = settings.secret2.value",
        "PASSWORD=${DB_PASSWORD1}",
        "bearer authentication is described below",
        "git@github.com:owner/repo.git",
        "write to someone@example.com or noreply@corp.io",
        "@decorator.name and a@b",
        "version 1.2.3.4 on 127.0.0.1, 10.11.12.130, 192.168.100.200, 203.0.113.111",
        "card 4111 1111 1111 1112",
        "1234567890123456 and 4.5e+100 and +1234",
        "DE00 1234 5678 9012 3456 78",
        "000-12-3456 and 123-45-6789012",
        "2026-11-21 14:36:38, 10:20:30",
        "sk-estimator-doc-link-and-more-of-it",
        "https://host:8080/path@tag",
        "https://user:${PASSWORD}@host/",
        "sum: +12 345 -6 789",
        "deadbeef" * 8,
        "Mozilla/5.0 (X11) Chrome/120.0.0.0 Safari/537.36",
        "z = 0.4831460674157303 and 2.2572053268208538",
        "\\n@pytest.fixture",
    ],
)
def test_what_only_looks_like_a_secret_stays(redact, text):
    assert redact.texts([text]).texts == [text]


def test_a_key_goes_with_its_body_also_where_it_was_cut_off(redact, make_secret):
    key = make_secret("private-key", 1)
    cut = key[: key.index("==") - 20]
    escaped = json.dumps({"key": key})
    found = redact.texts([f"a\n{key}\nb", f"a\n{cut}", escaped, f"{key} {key}"])
    hidden = "[REDACTED:private-key]"
    assert found.texts == [f"a\n{hidden}\nb", f"a\n{hidden}\n", json.dumps({"key": hidden}), f"{hidden} {hidden}"]
    assert found.found == {"private-key": 5}


def test_headers_without_end_take_no_longer_each_than_one(redact):
    """A pattern that looks for the end from each header would take minutes."""
    found = redact.texts([f"-----BEGIN PRIVATE{' '}KEY-----\n" * 30_000])
    assert found.found == {"private-key": 30_000}


def mixtures(make_secret):
    secret = st.builds(make_secret, st.sampled_from(SHAPED), st.integers(0, 10_000))
    glue = st.sampled_from([" ", "\n", "\\n", '"', "=", "://u:", "@", "password: ", "Bearer ", ".", "\x00", "\x02", "é", "0", "+"])
    printable = st.characters(exclude_categories=("C", "Z"), include_characters=" ")
    return st.lists(st.one_of(secret, glue, st.text(printable, max_size=8)), max_size=12).map("".join)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_both_engines_agree(redact, make_secret, data):
    texts = [plain(text) for text in data.draw(st.lists(mixtures(make_secret), min_size=1, max_size=12))]
    first = redact.texts(texts)
    expected = [by_the_standard_library(text) for text in texts]
    assert first.texts == [text for text, _ in expected]
    assert first.found == sum((counts for _, counts in expected), Counter())
    assert first.changed == [bool(counts) for _, counts in expected]


@pytest.mark.parametrize(
    "text",
    ['{"password": "«Passw0rt mit Leerzeichen!»"}', r"{\"dbPassword\": \"«my dog 77 barks»\"}", "DB_PASSWORD='«Summer 2024!»'"],
)
def test_a_quoted_password_of_several_words_is_hidden_whole(redact, text):
    """Only its first word was, if that had a digit."""
    shown = text.replace("«", "").replace("»", "")
    hidden = f"{text.partition('«')[0]}[REDACTED:password-with-spaces]{text.partition('»')[2]}"
    assert redact.texts([shown]).texts == [hidden]


@pytest.mark.parametrize(
    "text", ['{"password": "Your password must have 8 letters"}', 'password="%s 1"', '{"password": "", "note": "of 2 3"}']
)
def test_what_is_said_of_a_password_in_quotes_stays(redact, text):
    assert redact.texts([text]).texts == [text]


@pytest.mark.parametrize("between", [" and ", "\n", '", "', "; "])
def test_a_second_time_changes_nothing(redact, make_secret, between):
    texts = [between.join(make_secret(name, seed) for name in SHAPED) for seed in range(20)]
    first = redact.texts(texts)
    assert first.found == dict.fromkeys(SHAPED, 20)
    assert redact.texts(first.texts).texts == first.texts


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_arguments_stay_json(redact, make_secret, data):
    values = data.draw(st.dictionaries(st.sampled_from(["password", "body", "a"]), mixtures(make_secret), max_size=3))
    assert isinstance(json.loads(redact.texts([json.dumps(values)]).texts[0]), dict)


def test_messages_say_which_conversation_changed(make_secret):
    key, address = make_secret("model-api-key", 1), make_secret("email", 1)
    clean = (Message("user", "hello"), Message("assistant", "hi"))
    dirty = (
        Message("user", f"mail {address}"),
        Message("assistant", "", (ToolCall("1", "send", json.dumps({"to": address, "key": key})),)),
        Message("tool", f"sent to {address}", tool_call_id="1", name="send"),
    )
    with redactor(threads=1) as redact:
        result = redact.messages([clean, dirty, ()])
    assert result.changed == [False, True, False]
    assert result.conversations[0] == clean
    hidden = "[REDACTED:email]"
    assert [message.content for message in result.conversations[1]] == [f"mail {hidden}", "", f"sent to {hidden}"]
    assert json.loads(result.conversations[1][1].tool_calls[0].arguments) == {"to": hidden, "key": "[REDACTED:model-api-key]"}
    assert result.conversations[1][2].tool_call_id == "1"
    assert result.found == {"email": 3, "model-api-key": 1}


def test_conversations_of_any_length_keep_apart(redact, make_secret):
    """Each is redacted as it is alone, whatever stands before and after it."""
    address = make_secret("email", 1)
    said = [Message("user", "a"), Message("user", f"to {address}"), Message("assistant", "", (ToolCall("1", address, "{}"),))]
    conversations = [tuple(said[place] for place in places) for places in ((), (0,), (1, 0), (), (2,), (0, 2, 1), (0, 0), ())]
    alone = [redact.messages([messages]).conversations[0] for messages in conversations]
    together = redact.messages(conversations)
    assert together.conversations == alone
    assert together.changed == [address in str(messages) for messages in conversations]


def test_no_texts_at_all():
    assert redact_texts([]).texts == []


def test_code_that_handles_passwords_loses_nothing_but_addresses(redact):
    """The standard library's own sources about mail, keys and logins: whatever is found besides addresses is a false positive."""
    library = Path(sysconfig.get_paths()["stdlib"])
    names = ["getpass", "smtplib", "ftplib", "imaplib", "netrc", "ssl", "urllib/request", "http/cookiejar"]
    texts = [(library / f"{name}.py").read_text(encoding="utf-8") for name in names]
    assert set(redact.texts(texts).found) <= {"email", "ip"}


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("a\u200bb {0}\u200b{1} c\u00add", "a\u200bb [REDACTED:github-token] c\u00add"),
        ("鍵：{0}\ufeff{1}。次", "鍵：[REDACTED:github-token]。次"),  # noqa: RUF001
        ("１２ {0}{1} ３４", "１２ [REDACTED:github-token] ３４"),  # noqa: RUF001
        ('{{"k": "{0}\\u200b{1}"}}', '{{"k": "[REDACTED:github-token]"}}'),
        ("👩\u200d👧 {0}{1} 👩\u200d👧", "👩\u200d👧 [REDACTED:github-token] 👩\u200d👧"),
    ],
)
def test_only_the_secret_is_replaced_in_what_was_written(redact, make_secret, text, hidden):
    key = make_secret("github-token", 1)
    assert redact.texts([text.format(key[:12], key[12:])]).texts == [hidden.format()]


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\u200b\u00adａ１：")))  # noqa: RUF001
def test_plain_text_is_plain_and_nothing_is_lost_of_it(text):
    read = plain(text)
    assert plain(read) == read
    assert spliced(text, list(read), list(read)) == text
    assert plain(spliced(text, list(read), ["x"] * len(read))) == "x" * len(read)


def test_rules_have_names_reasons_and_no_groups_of_their_own():
    rules = load_rules()
    assert len({rule.name for rule in rules}) == len(rules)
    assert all(rule.why and re.compile(rule.pattern).groups == 3 for rule in rules)
