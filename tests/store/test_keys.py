import pytest

from clawpipe.core.config.night import Curation
from clawpipe.core.config.training import Train
from clawpipe.core.store.keys import step_key
from clawpipe.core.store.refs import DatasetRef

REF = DatasetRef(name="samples", digest="ab", rows=3)


def key(**inputs):
    return step_key("curate", inputs, "code")


def test_where_an_input_came_from_does_not_count():
    assert key(data=REF) == key(data=REF.model_copy(update={"parents": ("x",)}))


def test_content_settings_and_step_count():
    keys = {
        key(data=REF),
        key(data=REF.model_copy(update={"digest": "cd"})),
        key(data=REF, config=Curation()),
        key(data=REF, config=Curation(max_tokens=9)),
        step_key("train", {"data": REF}, "code"),
        step_key("curate", {"data": REF}, "other code"),
    }
    assert len(keys) == 6


@pytest.mark.parametrize(
    ("settings", "same"),
    [
        ({"checkpoint_seconds": 1.0}, True),
        ({"start_from": "champion"}, True),  # the policy that it starts from is an input of its own
        ({"dpo": {"beta": 0.5}}, True),  # of a method that is not this one
        ({"method": "dpo"}, False),
        ({"optimizer_steps": 5}, False),
        ({"loss": {"clip_low": 0.1}}, False),
    ],
)
def test_settings_count_as_far_as_they_change_the_result(settings, same):
    assert (key(config=Train.model_validate(settings)) == key(config=Train())) is same


def test_order_of_arguments_does_not_count():
    assert key(a=1, b=Train()) == key(b=Train(), a=1)


def test_what_has_no_canonical_form_is_refused():
    with pytest.raises(TypeError, match="object"):
        key(data=object())


def test_not_a_number_is_refused():
    with pytest.raises(ValueError, match="JSON"):
        key(data=float("nan"))
