import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.core.config.night import EnvironmentConfig, Gate
from clawpipe.learn.evaluation.verdict.gate import decide
from clawpipe.learn.evaluation.verdict.verdict import Decision, Evidence, Fidelity, Freshness, ItemOutcome, ModelOutcomes, Verdict
from tests.evaluation.test_statistics import power

RULES = Gate(alpha=0.05, nights=1, min_effect=0.02, min_items=50, slice_margin=0.1)
ORDER = [Decision.REJECT, Decision.HOLD, Decision.PROMOTE]


def model(version, successes, slices=None):
    items = {
        f"item-{number}": ItemOutcome(success=success, slice=slices[number] if slices else "all")
        for number, success in enumerate(successes)
    }
    return ModelOutcomes(policy_version=version, items=items)


def night(
    wins=0, losses=0, both=0, neither=0, *, slices=None, champion=True, served="candidate", versions=("champion", "candidate")
):
    """Return evidence with these numbers of items won, lost, solved by both and by neither."""
    before = [False] * wins + [True] * losses + [True] * both + [False] * neither
    after = [True] * wins + [False] * losses + [True] * both + [False] * neither
    return Evidence(
        base=model("base", [False] * len(before) if champion else before, slices),
        champion=model(versions[0], before, slices) if champion else None,
        candidate=model(versions[1], after, slices),
        served=served,
    )


def with_outcome(evidence, role, item, outcome):
    """Return the evidence with one item of one model replaced, or removed if `outcome` is None."""
    evaluated = getattr(evidence, role)
    items = {name: old for name, old in evaluated.items.items() if name != item} | ({item: outcome} if outcome else {})
    return evidence.model_copy(update={role: evaluated.model_copy(update={"items": items})})


def served_otherwise(evidence, divergence, learnt, limit=0.05):
    """Return the evidence with a served artifact that differs from the trained one."""
    fidelity = Fidelity(trained="trained", served="candidate", divergence=divergence, learnt=learnt, positions=256)
    return evidence.model_copy(update={"fidelity": fidelity, "max_divergence": limit})


def slices(**counts):
    """Slice names of consecutive items: slices(a=2, b=1) is a, a, b."""
    return [name for name, count in counts.items() for _ in range(count)]


ERRORED = ItemOutcome(success=None, slice="all")
ELSEWHERE = ItemOutcome(success=True, slice="another")
SOLVED = ItemOutcome(success=True, slice="all")

# what is decided, evidence, verdict, words that a reason must hold
TABLE = [
    ("clearly better", night(40, 8, 80, 32), "PROMOTE", ["20.0 points", "160", "40 items won and 8 lost"]),
    ("first model beats the base", night(40, 8, 80, 32, champion=False), "PROMOTE", ["beats the base"]),
    ("first model does not beat the base", night(10, 9, 80, 61, champion=False), "HOLD", ["not clearly better than the base"]),
    ("five wins, no loss: p = 1/32", night(5, 0, 50, 45), "PROMOTE", ["p = 0.031"]),
    ("four wins, no loss: p = 1/16", night(4, 0, 50, 46), "HOLD", ["p = 0.062", "nine times in ten"]),
    ("tie without a discordant item", night(0, 0, 100, 60), "HOLD", ["0 items won and 0 lost", "p = 1"]),
    ("tie with discordant items", night(20, 20, 60, 60), "HOLD", ["20 items won and 20 lost"]),
    ("worse, not clearly", night(4, 8, 80, 68), "HOLD", ["not clearly better"]),
    ("clearly worse", night(8, 40, 80, 32), "REJECT", ["worse than the champion by 20.0 points"]),
    ("clearly worse than the base", night(8, 40, 80, 32, champion=False), "REJECT", ["worse than the base"]),
    ("nothing solved by anyone", night(0, 0, 0, 160), "HOLD", ["not clearly better"]),
    ("better by less than the smallest effect", night(6, 0, 300, 294), "HOLD", ["by 1.0 points only", "at least 2.0 points"]),
    ("better by the smallest effect exactly", night(12, 0, 300, 288), "PROMOTE", ["2.0 points"]),
    ("too few items", night(40, 0, 5, 4), "HOLD", ["on 49 held-out items, too few", "50"]),
    ("too few items to reject either", night(0, 40, 5, 4), "HOLD", ["too few"]),
    ("just enough items", night(40, 0, 5, 5), "PROMOTE", []),
    ("no items at all", night(), "HOLD", ["on 0 held-out items"]),
    ("the champion itself", night(40, 8, 80, 32, versions=("candidate", "candidate")), "HOLD", ["the same model"]),
    ("serving keeps what was learnt", served_otherwise(night(40, 8, 80, 32), 0.02, 0.5), "PROMOTE", ["20.0 points"]),
    ("serving keeps it just so", served_otherwise(night(40, 8, 80, 32), 0.125, 0.5, 0.25), "PROMOTE", []),
    (
        "serving loses what was learnt",
        served_otherwise(night(40, 8, 80, 32), 0.12, 0.5),
        "HOLD",
        ["0.12, 24.0 % of KL(trained || base), 0.5, on 256", "allows 5 %", "serving.artifact: adapter"],
    ),
    ("serving changes what learnt nothing", served_otherwise(night(40, 8, 80, 32), 0.01, 0.0), "HOLD", ["more than all"]),
    ("nothing learnt, nothing changed", served_otherwise(night(40, 8, 80, 32), 0.0, 0.0), "PROMOTE", []),
    ("clearly worse, and lost in serving", served_otherwise(night(8, 40, 80, 32), 0.4, 0.5), "REJECT", ["worse than the champion"]),
    ("another artifact than the evaluated one", night(40, 8, 80, 32, served="other"), "HOLD", ["not the one that was evaluated"]),
    (
        "errored item of the candidate",
        with_outcome(night(40, 8, 80, 32), "candidate", "item-1", ERRORED),
        "HOLD",
        ["1 of 160", "candidate"],
    ),
    (
        "errored item of the champion",
        with_outcome(night(40, 8, 80, 32), "champion", "item-1", ERRORED),
        "HOLD",
        ["1 of 160", "champion"],
    ),
    ("errored item of the base", with_outcome(night(40, 8, 80, 32), "base", "item-1", ERRORED), "HOLD", ["1 of 160", "base"]),
    ("errors are no reason to reject", with_outcome(night(8, 40, 80, 32), "candidate", "item-1", ERRORED), "HOLD", ["error"]),
    (
        "item missing",
        with_outcome(night(40, 8, 80, 32), "candidate", "item-1", None),
        "HOLD",
        ["champion", "other items", "1 differ"],
    ),
    ("item too many", with_outcome(night(40, 8, 80, 32), "champion", "item-x", SOLVED), "HOLD", ["other items"]),
    ("item of another slice", with_outcome(night(40, 8, 80, 32), "champion", "item-1", ELSEWHERE), "HOLD", ["other items"]),
    (
        "a slice clearly worse beyond the margin, better overall",
        night(60, 15, 45, 40, slices=slices(a=60, b=40, c=60)),
        "REJECT",
        ["'b' lost 37.5 points", "p = "],
    ),
    (
        "a slice worse beyond the margin, but not clearly",
        night(40, 3, 77, 40, slices=slices(a=40, b=20, c=100)),
        "HOLD",
        ["'b' lost 15.0 points", "too few to be sure"],
    ),
    ("a slice worse by the margin exactly", night(40, 2, 78, 40, slices=slices(a=40, b=20, c=100)), "PROMOTE", []),
    (
        "a slice of three items all lost is no clear regression",
        night(40, 3, 77, 40, slices=slices(a=40, b=3, c=117)),
        "HOLD",
        ["'b' lost 100.0 points"],
    ),
    (
        "worse overall and in a slice: both are said",
        night(2, 40, 78, 40, slices=slices(a=2, b=40, c=118)),
        "REJECT",
        ["worse than the champion", "'b' lost 100.0 points"],
    ),
]


@pytest.mark.parametrize(("evidence", "decision", "words"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_decision_table(evidence, decision, words):
    verdict = decide(evidence, RULES)
    assert verdict.decision == decision, verdict.reasons
    text = " ".join(verdict.reasons)
    assert [word for word in words if word not in text] == []
    assert all(reason[0].isupper() and reason.endswith(".") for reason in verdict.reasons), verdict.reasons
    assert verdict.reasons


def test_every_doubt_is_named():
    evidence = with_outcome(night(3, 2, 4, 2, served="other"), "candidate", "item-1", ERRORED)
    text = " ".join(decide(evidence, RULES).reasons)
    assert "not the one that was evaluated" in text
    assert "ended in an error" in text
    assert "too few" in text


def test_bonferroni_takes_more_proof_where_there_are_more_slices():
    """Slice b lost 12 of 40 items, p = 0.0014: significant among 2 slices, not among 41."""
    few = night(120, 12, 40, 0, slices=slices(a=120, b=40, c=12))
    many = night(120, 12, 40, 0, slices=[f"a{number % 39}" for number in range(120)] + slices(b=40, c=12))
    assert decide(few, RULES).decision == Decision.REJECT
    assert decide(many, RULES).decision == Decision.HOLD


def test_numbers_of_the_verdict_by_hand():
    verdict = decide(night(40, 8, 80, 32), RULES)
    comparison = verdict.comparison
    assert (comparison.wins, comparison.losses, comparison.n, comparison.effect) == (40, 8, 160, 0.2)
    assert verdict.models["candidate"].success == 120 / 160
    assert verdict.models["champion"].success == 88 / 160
    assert verdict.models["base"].success == 0
    assert verdict.models["base"].low == 0
    assert verdict.models["candidate"].low < 0.75 < verdict.models["candidate"].high


def test_what_cannot_be_computed_is_absent():
    evidence = night(1, 0, 0, 0)
    verdict = decide(with_outcome(evidence, "candidate", "item-0", ERRORED), RULES)
    assert verdict.comparison is None
    assert verdict.models["candidate"].success is None
    assert verdict.models["candidate"].errors == 1


def test_a_verdict_survives_json():
    verdict = decide(night(40, 8, 80, 32, slices=slices(a=80, b=80)), RULES)
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict


outcomes = st.tuples(st.booleans(), st.booleans(), st.sampled_from("abc"))


def evidence_of(rows, size=1):
    """Return evidence of (success before, success after, slice) rows, `size` consecutive items per identity."""
    names = [name for _, _, name in rows]
    evidence = Evidence(
        base=model("base", [False] * len(rows), names),
        champion=model("champion", [before for before, _, _ in rows], names),
        candidate=model("candidate", [after for _, after, _ in rows], names),
        served="candidate",
    )
    return clustered(evidence, size)


@settings(deadline=None, max_examples=200)
@given(st.lists(outcomes, min_size=1, max_size=80), st.integers(1, 3), st.data())
def test_a_solved_item_never_makes_the_verdict_worse(rows, size, data):
    rules = Gate(min_items=1, alpha=0.2, nights=1, slice_margin=0.05)
    failed = [number for number, (_, after, _) in enumerate(rows) if not after]
    if failed:
        number = data.draw(st.sampled_from(failed))
        better = [*rows[:number], (rows[number][0], True, rows[number][2]), *rows[number + 1 :]]
        verdicts = [decide(evidence_of(version, size), rules).decision for version in (rows, better)]
        assert ORDER.index(verdicts[1]) >= ORDER.index(verdicts[0])


@settings(deadline=None)
@given(st.lists(outcomes, min_size=1, max_size=80))
def test_swapping_the_models_swaps_the_evidence(rows):
    forth = decide(evidence_of(rows), RULES).comparison
    back = decide(evidence_of([(after, before, name) for before, after, name in rows]), RULES).comparison
    assert (forth.p_better, forth.p_worse, forth.effect) == (back.p_worse, back.p_better, -back.effect)


@settings(deadline=None)
@given(st.lists(outcomes, min_size=1, max_size=80), st.integers(1, 3), st.randoms())
def test_the_order_of_the_items_has_no_influence(rows, size, shuffler):
    def shuffled(outcomes):
        items = list(outcomes.items.items())
        shuffler.shuffle(items)
        return outcomes.model_copy(update={"items": dict(items)})

    evidence = evidence_of(rows, size)
    other = evidence.model_copy(update={role: shuffled(outcomes) for role, outcomes in evidence.models()})
    rules = Gate(min_items=1)
    assert decide(other, rules) == decide(evidence, rules)


@pytest.mark.parametrize("discordant", [0.2, 0.4, 0.6])
def test_rules_on_four_slices_keep_the_power_of_the_paired_test(discordant):
    """Simulated nights with the default settings and a true gain of 20 points."""
    nights, items, rng = 400, EnvironmentConfig().heldout_items, random.Random(7)
    won = (discordant + 0.2) / 2

    def item(number):
        luck = rng.random()
        before, after = (False, True) if luck < won else (True, False) if luck < discordant else (True, True)
        return before, after, "abcd"[number % 4]

    promoted = sum(
        decide(evidence_of([item(number) for number in range(items)]), Gate()).decision == "PROMOTE" for _ in range(nights)
    )
    assert promoted / nights >= power(items, 0.2, discordant, Gate().level) - 0.06


def clustered(evidence, size):
    """Return the evidence with `size` consecutive items per identity."""

    def of(outcomes):
        items = {
            item: outcome.model_copy(update={"identity": f"identity-{number // size}"})
            for number, (item, outcome) in enumerate(outcomes.items.items())
        }
        return outcomes.model_copy(update={"items": items})

    return evidence.model_copy(update={role: of(outcomes) for role, outcomes in evidence.models()})


def test_items_of_one_identity_are_one_observation():
    """Six wins of three identities are three wins: p = 1/8, not 1/64."""
    apart, together = night(6, 0, 60, 54), clustered(night(6, 0, 60, 54), 2)
    assert decide(apart, RULES).decision == Decision.PROMOTE
    verdict = decide(together, RULES)
    assert verdict.decision == Decision.HOLD
    assert (verdict.comparison.p_better, verdict.comparison.identities, verdict.comparison.n) == (1 / 8, 60, 120)
    assert "120 held-out items of 60 identities" in verdict.reasons[0]


def test_a_slice_is_rejected_by_its_identities():
    """Slice b lost 15 of 40 items: significant for 40 identities, not for 5."""
    evidence = night(60, 15, 45, 40, slices=slices(a=60, b=40, c=60))
    assert decide(evidence, RULES).decision == Decision.REJECT
    assert decide(clustered(evidence, 8), RULES).decision == Decision.HOLD


def test_an_interval_is_that_of_as_many_identities():
    wide = decide(clustered(night(40, 8, 80, 32), 4), RULES).models["candidate"]
    narrow = decide(night(10, 2, 20, 8), RULES.model_copy(update={"min_items": 1})).models["candidate"]
    assert (wide.low, wide.high, wide.n) == (pytest.approx(narrow.low), pytest.approx(narrow.high), 160)


def test_the_fewest_items_are_counted_by_identity():
    verdict = decide(clustered(night(40, 0, 58, 0), 2), RULES)
    assert verdict.decision == Decision.HOLD
    assert "on 98 held-out items of 49 identities, too few: the rules ask for 50 independent ones" in verdict.reasons[0]


def test_promotion_at_alpha_over_nights_and_rejection_at_alpha():
    rules = Gate()
    assert rules.level == pytest.approx(0.05 / 30)
    lucky, unlucky = night(20, 6, 80, 54), night(6, 20, 80, 54)  # p = 0.0047
    assert decide(lucky, RULES).decision == Decision.PROMOTE
    verdict = decide(lucky, rules)
    assert verdict.decision == Decision.HOLD
    assert "p = 0.0047, not below 0.0017 (0.05 over 30 nights)" in verdict.reasons[0]
    assert decide(unlucky, rules).decision == Decision.REJECT


@pytest.mark.parametrize(
    ("freshness", "told"),
    [
        (Freshness(identities=160, fresh=160), "No earlier night has looked at any of the 160 identities"),
        (Freshness(identities=160, fresh=12, looks=2.25), "Of the 160 identities that this rests on, 12 are fresh; earlier nights"),
    ],
)
def test_a_verdict_says_how_fresh_its_evidence_is(freshness, told):
    evidence = night(40, 8, 80, 32).model_copy(update={"freshness": freshness})
    verdict = decide(evidence, RULES)
    assert verdict.decision == Decision.PROMOTE
    assert told in verdict.reasons[-1]
    assert verdict.freshness == freshness
    assert not [reason for reason in decide(night(40, 8, 80, 32), RULES).reasons if "identities" in reason]


def likelihoods(champion: list[float], candidate: list[float]) -> Evidence:
    """Evidence of two models' likelihoods of the same conversations; both find each likelier than the base."""

    def scored(version: str, values: list[float]) -> ModelOutcomes:
        items = {f"c{number}": ItemOutcome(success=True, value=value, slice="all") for number, value in enumerate(values)}
        return ModelOutcomes(policy_version=version, items=items)

    return Evidence(
        base=scored("base", [-9.0] * len(champion)),
        champion=scored("champion", champion),
        candidate=scored("candidate", candidate),
        measure="likelihood",
        served="candidate",
    )


def test_likelihoods_are_compared_conversation_by_conversation():
    """Not by success, which is the same for both: each is likelier than under the base."""
    verdict = decide(likelihoods([-2.0] * 60, [-1.0] * 55 + [-3.0] * 5), RULES.model_copy(update={"promote_on_likelihood": True}))
    assert (verdict.decision, verdict.measure) == (Decision.PROMOTE, "likelihood")
    assert verdict.comparison is not None
    assert (verdict.comparison.wins, verdict.comparison.losses) == (55, 5)
    assert verdict.models["candidate"].log_prob == pytest.approx((-55 - 15) / 60)
    assert "55 conversations likelier and 5 less likely" in verdict.reasons[0]
    assert "imitates" in verdict.reasons[1]  # a promotion says on what it rests, too


def test_likelihood_alone_promotes_only_where_the_rules_say_so():
    verdict = decide(likelihoods([-2.0] * 60, [-1.0] * 60), RULES)
    assert verdict.decision == Decision.HOLD
    assert any("gate.promote_on_likelihood" in reason for reason in verdict.reasons)


def test_less_likely_conversations_reject_whatever_the_rules_say():
    for rules in (RULES, RULES.model_copy(update={"promote_on_likelihood": True})):
        assert decide(likelihoods([-1.0] * 60, [-2.0] * 60), rules).decision == Decision.REJECT
