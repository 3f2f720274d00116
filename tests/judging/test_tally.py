"""What a night says of its judges: counts by judge, rule and model, agreement, and what was spent."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.play.judging.judged_scores import judged_scores
from clawpipe.play.judging.report import agreements
from clawpipe.play.judging.tally import Tally
from clawpipe.record.nights.status import JudgeCounts, NightJudges
from clawpipe.record.reporting.judges import judge_lines
from tests.judging.test_group import rollout
from tests.judging.test_prm import chat, stored


def score(scorer: str, value: float, turn: int | None = 0, reason: str = "votes", votes: Any = None, origin: str = "judge") -> dict:
    evidence = json.dumps({"votes": [{"model": "m", "value": vote} for vote in votes]} if votes else {})
    return {"scorer": scorer, "origin": origin, "turn": turn, "value": value, "reason": reason, "evidence": evidence}


def test_turns_are_counted_by_judge_rule_and_model():
    tally = Tally(["prm", "rules"], [])
    tally.add(chat(), [score("prm", 1, votes=[1, 1, -1]), score("prm", 1, None), score("rules", -1, reason="complaint")])
    tally.add(chat(), [score("prm", 0, votes=[None, None])])
    tally.add(chat(), [score("prm", 0, votes=[0]), score("rules", 1, reason="thanks")])
    tally.add(stored(Message("user", "a"), Message("assistant", "b"), Message("user", "c"), Message("assistant", "d")), [])
    assert tally.details()["judges"] == {
        "prm": {
            "turns": 5, "abstained": 2, "praised": 1, "neutral": 1, "unread": 1,
            "models": {"m": {"praised": 2, "blamed": 1, "unread": 2, "neutral": 1}},
        },
        "rules": {"turns": 5, "abstained": 3, "blamed": 1, "praised": 1, "rules": {"complaint": 1, "thanks": 1}},
    }  # fmt: skip
    assert Tally(["prm"], []).details() == {}


def test_rankings_are_compared_with_the_verifier():
    """Of three rollouts the judge has the two last ones in the wrong order; one has no rank."""
    tally = Tally(["group"], ["group"])
    for number, (rank, truth) in enumerate([(1.0, 1.0), (0.0, 0.5), (0.5, 0.0), (None, 0.7)]):
        own = [score("group", rank, None)] if rank is not None else []
        tally.add(rollout("x", number), [*own, score("verifier/e", truth, None, origin="verifier")])
    assert tally.details()["judges"]["group"] == {"rollouts": 4, "ranked": 3, "pairs": 3, "agreeing_pairs": 2}


def test_judges_are_compared_with_each_other_and_with_people():
    scored = [
        [
            {"turn": 0, "scorer": name, "origin": origin, "value": value, "success": None}
            for name, origin, value in [("prm", "judge", 1 if number else -1), ("rules", "judge", 1), ("thumb", "user", 1)]
        ]
        for number in range(4)
    ]
    found = {(one.judge, one.origin): (one.n, one.agree) for one in agreements(scored)}
    assert found == {("prm", "user"): (4, 0.75), ("rules", "user"): (4, 1.0), ("prm", "rules"): (4, 0.75)}


def test_a_night_says_what_its_judges_did():
    spent = {"judge": "m at http://j/v1", "requests": 9, "failed": 2, "estimated": 3, "tokens": 1000, "held_tokens": 40}
    judges = NightJudges(
        said={"rules": JudgeCounts(turns=9, praised=2, blamed=3, abstained=4, rules={"thanks": 2, "complaint": 3}),
              "group": JudgeCounts(rollouts=8, ranked=8, pairs=12, agreeing_pairs=9)},
        agreement=[{"judge": "rules", "origin": "user", "kind": "turn", "n": 20, "agree": 0.9, "kappa": 0.75}],
        spent=[spent | {"money": 0.25, "seconds": 12.4}],
    )  # fmt: skip
    assert judge_lines(judges) == [
        ("judge rules", "9 turns: 2 praised, 3 blamed, 0 neutral, 0 unread, 4 abstained"),
        ("", "by rule: thanks 2, complaint 3"),
        ("judge group", "8 of 8 rollouts ranked; the verifier agrees on 9 of 12 pairs"),
        ("agreement", "rules and users: 0.90 of 20 turns, kappa 0.75"),
        ("spent", "m at http://j/v1: 9 requests, 1000 tokens, 12 s, 0.25 of money; 2 tries failed; the tokens of 3 requests are "
                  "estimated; 40 tokens of answers that were lost"),
    ]  # fmt: skip
    assert judge_lines(None) == []


def test_scores_are_read_by_trajectory_in_stored_order(tmp_path):
    """Two datasets, in which the scores of a trajectory lie apart; nobody's judge has seen the last one."""
    store = Store(tmp_path)
    known = [("b", 1, "prm", "judge"), ("a", None, "v", "verifier"), ("b", 0, "prm", "judge"), ("c", None, "v", "verifier")]
    again = [("a", 1, "prm", "judge"), ("b", 1, "thumb", "user")]
    names = ("trajectory_id", "turn", "scorer", "origin")
    rows = [[dict(zip(names, one, strict=True)) | {"value": 1.0} for one in part] for part in (known, again)]
    refs = [publish_dataset(store, "scores", [conformed(pa.Table.from_pylist(part), schema_of("scores"))]) for part in rows]
    found = [[tuple(row[name] for name in names) for row in scores] for scores in judged_scores(store, refs)]
    assert found == [[known[1], again[0]], [known[0], known[2], again[1]]]
    assert list(judged_scores(store, [])) == []
