"""What a round drew and weighed, in the report's words."""

from clawpipe.core.store.refs import StepResult
from clawpipe.record.nights.status import entry
from clawpipe.record.reporting.html import signals


def test_draws_and_shares_are_said_round_by_round() -> None:
    details = {
        "round-1/draw_items": {"drawn": {"middling": 3, "unseen": 1}},
        "round-1/curate": {
            "slices": {"calc": {"rows": 2, "share": 0.25}, "price": {"rows": 6, "share": 0.75}},
            "demonstrations": 2,
        },
        "gate": {"slices": [{"slice": "calc"}]},
        "round-2/curate": {},
    }
    steps = [entry(name, False, 1.0, None, StepResult(details=told)) for name, told in details.items()]
    assert list(signals(steps)) == [
        "round-1: of the items that were drawn 3 are middling, 1 are unseen.",
        "round-1: the slices' shares of the loss are calc 25% (2 rows), price 75% (6 rows).",
    ]
