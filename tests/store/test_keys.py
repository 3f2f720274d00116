import importlib

import pytest

from clawpipe.config.night import Curation
from clawpipe.config.training import Train
from clawpipe.store import digests
from clawpipe.store.keys import step_key
from clawpipe.store.refs import DatasetRef

REF = DatasetRef(name="samples", digest="ab", rows=3)


def key(**inputs):
    return step_key("curate", inputs, "clawpipe.store.keys")


def test_where_an_input_came_from_does_not_count():
    assert key(data=REF) == key(data=REF.model_copy(update={"parents": ("x",)}))


def test_content_settings_and_step_count():
    keys = {
        key(data=REF),
        key(data=REF.model_copy(update={"digest": "cd"})),
        key(data=REF, config=Curation()),
        key(data=REF, config=Curation(max_tokens=9)),
        step_key("train", {"data": REF}, "clawpipe.store.keys"),
        step_key("curate", {"data": REF}, "clawpipe.store.keys", ["pyarrow"]),
    }
    assert len(keys) == 6


def test_order_of_arguments_does_not_count():
    assert key(a=1, b=Train()) == key(b=Train(), a=1)


def test_what_has_no_canonical_form_is_refused():
    with pytest.raises(TypeError, match="object"):
        key(data=object())


def test_not_a_number_is_refused():
    with pytest.raises(ValueError, match="JSON"):
        key(data=float("nan"))


def test_code_counts_through_imports(tmp_path, monkeypatch):
    (tmp_path / "tasks_probe").mkdir()
    for name, source in {
        "__init__": "",
        "work": "from tasks_probe.help import twice\n",
        "help": "def twice(x): return 2 * x\n",
    }.items():
        (tmp_path / "tasks_probe" / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(digests, "FIRST_PARTY", ("tasks_probe",))
    digests._closure.cache_clear()
    importlib.invalidate_caches()
    before = digests.code_digest("tasks_probe.work")
    (tmp_path / "tasks_probe" / "help.py").write_text("def twice(x): return x + x\n")
    assert digests.code_digest("tasks_probe.work") != before
