from hypothesis import given
from hypothesis import strategies as st

from clawpipe.play.workers.request import choose_contexts

MASKS = st.lists(st.lists(st.booleans(), max_size=12), max_size=30)


def rows_of(masks):
    return [{"token_ids": [number] * len(mask), "loss_mask": mask} for number, mask in enumerate(masks)]


def test_positions_are_sampled_tokens_of_all_trajectories():
    rows = rows_of([[False, False, True, True]] * 10)
    contexts = choose_contexts(rows, wanted=8)
    assert [context.ids[0] for context in contexts] == [0, 2, 5, 7]
    assert {context.positions for context in contexts} == {(2, 3)}


def test_the_first_token_is_no_position():
    assert choose_contexts(rows_of([[True, True]]), wanted=5)[0].positions == (1,)


@given(MASKS, st.integers(1, 50))
def test_each_is_chosen_once_and_in_order(masks, wanted):
    contexts = choose_contexts(rows_of(masks), wanted)
    chosen = [context.ids[0] for context in contexts]
    assert chosen == sorted(set(chosen))
    assert all(masks[row][place] for row, context in zip(chosen, contexts, strict=True) for place in context.positions)
    if any(any(mask[1:]) for mask in masks) and wanted >= 30 * 12:
        assert contexts
