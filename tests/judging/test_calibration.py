"""A judge that does not agree with people stops the night, in one line with its kappa."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawpipe.core.store.home import Home
from clawpipe.errors import ConfigError
from clawpipe.play.judging.group import make_group
from clawpipe.play.judging.prm import make_prm
from tests.judging.fake_judge import fake_judge, verdict
from tests.judging.test_group import by, rollouts
from tests.judging.test_prm import chat, scored


@pytest.fixture
def calibration(home: Home, tmp_path: Path) -> str:
    """Twenty conversations, attempts at four questions; people like those whose answer is even."""
    lines = [
        {
            "messages": [
                {"role": "user", "content": f"Question {number % 4}?"},
                {"role": "assistant", "content": "x" * (number + 1)},
                {"role": "user", "content": f"I see, {'even' if good else 'odd'}."},
            ],
            "session_id": f"s{number}",
            "thumb": "up" if good else "down",
        }
        for number in range(20)
        for good in [number % 8 < 4]
    ]
    file = tmp_path / "people.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(file)


def test_a_judge_that_agrees_judges_the_night(calibration: str):
    with fake_judge(lambda system, document: verdict(system, -1 if "odd" in document else 1)) as judge:
        scorer = make_prm(url=judge.url, model="m", votes=1, calibration=calibration)
        assert scored(scorer, chat()) == [{0: 1.0, None: 1.0}]
        assert scored(scorer, chat("Fine.")) == [{0: 1.0, None: 1.0}]
    assert len(judge.asked) == 20 + 2


@pytest.mark.parametrize(
    ("says", "message"),
    [
        (lambda document: 1 if "odd" in document else -1, r"kappa -\d\.\d+, and the floor is 0.4"),
        (lambda document: 1, "kappa none, since one side always says the same"),
        (lambda document: 0, "has a verdict on 0 of 20 calibration conversations, and 10 are needed"),
    ],
)
def test_a_judge_below_the_floor_stops_the_night(calibration: str, says, message: str):
    with fake_judge(lambda system, document: verdict(system, says(document))) as judge:
        with pytest.raises(ConfigError, match=message) as refused:
            scored(make_prm(url=judge.url, model="m", votes=1, calibration=calibration), chat())
        assert "\n" not in refused.value.what
    assert len(judge.asked) == 20


def test_a_ranker_is_calibrated_by_pairs(calibration: str):
    liked = lambda text: 1.0 if "even" in text else 0.0  # noqa: E731
    rows = rollouts("even", "odd")
    with fake_judge(by(liked)) as judge:
        make_group(url=judge.url, model="m", calibration=calibration).prepare(rows)
    with fake_judge(by(lambda text: -liked(text))) as judge, pytest.raises(ConfigError, match=r"kappa -1.00, and the floor is 0.4"):
        make_group(url=judge.url, model="m", calibration=calibration).prepare(rows)


def test_too_few_verdicts_of_people_calibrate_nobody(home: Home, tmp_path: Path):
    (tmp_path / "few.jsonl").write_text(json.dumps({"messages": chat()["messages"]}) + "\n")
    with pytest.raises(ConfigError, match="0 different conversations have a person's verdict"):
        make_prm(url="http://127.0.0.1:9/v1", model="m", calibration=str(tmp_path / "few.jsonl")).prepare([chat()])


def test_a_conversation_that_comes_again_calibrates_once(home: Home, tmp_path: Path):
    """Two conversations, each ten times, were twenty that a judge agreed with; lines that cannot be read were not counted."""
    talks = [
        {
            "messages": [{"role": "user", "content": "Two?"}, {"role": "assistant", "content": text}],
            "session_id": name,
            "thumb": thumb,
        }
        for name in map(str, range(10))
        for text, thumb in [("2", "up"), ("3", "down"), ("4", "up" if int(name) % 2 else "down")]
    ]
    file = tmp_path / "again.jsonl"
    file.write_text("".join(f"{json.dumps(talk)}\n" for talk in talks) + "{not json\n")
    with pytest.raises(ConfigError, match=r"2 different conversations .* 1 of 31 lines cannot be read"):
        scored(make_prm(url="http://127.0.0.1:9/v1", model="m", calibration=str(file)), chat())
