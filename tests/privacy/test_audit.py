from clawpipe.data.privacy.audit import audit
from clawpipe.data.privacy.redact import redact_texts

KNOWN = ["private-key", "aws-key", "github-token", "gitlab-token", "chat-bot-token", "service-key"]  # kinds that both know


def test_the_audit_finds_no_secret_after_redaction(make_secret):
    texts = [f"see {make_secret(name, seed)} here" for name in KNOWN for seed in range(3)]
    before = audit(texts)
    assert before.sampled == len(texts)
    assert {number // 3 for number, _ in before.places} == set(range(len(KNOWN)))  # every kind was seen at least once
    assert not audit(redact_texts(texts, threads=1).texts).found


def test_it_sees_what_the_rules_do_not_know():
    texts = ["nothing", "xoxa" + "-1-a"]  # begins like a token of Slack
    assert redact_texts(texts, threads=1).texts == texts
    assert [number for number, _ in audit(texts).places] == [1]


def test_a_sample_is_the_same_each_time(make_secret):
    texts = [make_secret("aws-key", seed) for seed in range(50)]
    first = audit(texts, sample=5, seed=1)
    assert first == audit(texts, sample=5, seed=1)
    assert first.sampled == 5
    assert len(first.places) == first.found.total() >= 5
    assert audit([], sample=5).sampled == 0
