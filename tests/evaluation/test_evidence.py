import pyarrow as pa
import pytest

from clawpipe.errors import DataError
from clawpipe.learn.evaluation.verdict.evidence import build_evidence

SCHEMA = pa.schema(
    [
        ("policy_version", pa.string()),
        ("item_id", pa.string()),
        ("slice", pa.string()),
        ("trajectory_id", pa.string()),
        ("success", pa.bool_()),
        ("value", pa.float64()),
        ("error", pa.string()),
        ("seed", pa.int64()),
    ]
)


def results(version, *rows):
    """eval_results of (item, slice, success, error)."""
    return pa.Table.from_pylist(
        [
            {"policy_version": version, "item_id": item, "slice": part, "success": success, "error": error, "seed": 1}
            for item, part, success, error in rows
        ],
        schema=SCHEMA,
    )


GOOD = results("v1", ("a", "stock", True, None), ("b", "price", False, None))


def test_tables_become_outcomes_by_item():
    evidence = build_evidence(results("v0", ("a", "stock", False, None)), None, GOOD, served="v1")
    assert evidence.champion is None
    assert evidence.incumbent is evidence.base
    assert evidence.candidate.policy_version == "v1"
    assert {item: (outcome.success, outcome.slice) for item, outcome in evidence.candidate.items.items()} == {
        "a": (True, "stock"),
        "b": (False, "price"),
    }


def test_items_have_the_identities_of_the_task_items():
    evidence = build_evidence(GOOD, None, GOOD, served="v1", identities={"a": "kettle"})
    assert {item: outcome.identity for item, outcome in evidence.candidate.items.items()} == {"a": "kettle", "b": ""}


@pytest.mark.parametrize("success", [None, False, True])
def test_a_row_with_an_error_counts_as_errored(success):
    table = results("v1", ("a", "stock", success, "TimeoutError"), ("b", "stock", True, None))
    evidence = build_evidence(GOOD, GOOD, table, served="v1")
    assert evidence.candidate.items["a"].success is None
    assert evidence.candidate.errors == 1


def test_a_row_with_neither_success_nor_error_counts_as_errored():
    assert build_evidence(GOOD, None, results("v2", ("a", "stock", None, None)), served="v2").candidate.errors == 1


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (results("v1"), "holds 0"),
        (pa.concat_tables([GOOD, results("v2", ("c", "stock", True, None))]), "holds 2"),
        (results("v1", ("a", "stock", True, None), ("a", "stock", False, None)), "more than once"),
    ],
)
def test_tables_that_are_no_evaluation_of_one_model_are_refused(table, message):
    with pytest.raises(DataError, match=message):
        build_evidence(GOOD, None, table, served="v1")
