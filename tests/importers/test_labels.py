"""Labels find the attempts that they are about."""

import hashlib
import json

import pytest

from clawpipe.data.importers.formats.hermes import read_hermes
from clawpipe.data.importers.read.labels import join_labels, read_labels
from clawpipe.errors import DataError


def attempt(prompt, answer="a"):
    return read_hermes({"conversations": [{"from": "human", "value": prompt}, {"from": "gpt", "value": answer}]})


@pytest.fixture
def joined(tmp_path):
    def join(rows, *prompts):
        file = tmp_path / "labels.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        labels = read_labels([str(file)])
        found = list(join_labels([attempt(prompt) for prompt in prompts], labels))
        return [[judgement.value for judgement in one.judgements] for one in found], found, labels

    return join


def test_the_nth_label_of_a_prompt_is_of_its_nth_attempt(joined):
    rows = [{"prompt": "p", "score": 1}, {"prompt": "q", "score": 0.5}, {"prompt": "p", "score": 3}]
    values, _, labels = joined(rows, " p\n", "p", "p")
    assert values == [[1], [3], []]
    assert labels.unused == 1


def test_a_prompts_only_label_holds_for_all_attempts(joined):
    values, found, labels = joined([{"prompt": "p", "success": True, "difficulty": "easy"}], "p", "p", "other")
    assert values == [[1], [1], []]
    assert found[1].judgements[0].success is True
    assert found[1].judgements[0].evidence == {"difficulty": "easy"}
    assert labels.unused == 0


def test_a_label_may_name_the_attempt_and_the_hash(joined):
    digest = hashlib.sha256(b"p").hexdigest()
    values, _, _ = joined([{"prompt_hash": digest[:16].upper(), "occurrence": 1, "reward": -1}], "p", "p")
    assert values == [[], [-1]]


def test_a_label_that_does_not_score_is_kept(joined):
    _, [found], _ = joined([{"prompt": "p", "answer": "42"}], "p")
    assert found.judgements == ()
    assert found.extra["label"] == {"answer": "42"}


def test_labels_of_one_attempt_may_repeat_but_not_differ(joined):
    label = {"prompt": "p", "occurrence": 1, "score": 1}
    values, _, labels = joined([label, label], "p", "p")
    assert (values, labels.unused) == ([[], [1]], 0)
    with pytest.raises(DataError, match=r"labels\.jsonl:2: no label: .* says something else"):
        joined([label, label | {"score": 0}])


@pytest.mark.parametrize("row", [{"score": 1}, {"prompt_hash": "12", "score": 1}, {"prompt": "p", "score": "high"}])
def test_a_line_that_is_no_label_is_named(joined, row):
    with pytest.raises(DataError, match=r"labels\.jsonl:2: no label"):
        joined([{"prompt": "p", "score": 1}, row])
