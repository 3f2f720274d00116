"""Where a home may lie."""

import pytest

from clawpipe.core.store.home import Home
from clawpipe.errors import ConfigError


@pytest.mark.parametrize("name", ["what?", "my%20agent", "%41nn", 'it\'s "mine"'])
def test_a_path_that_mlflow_would_misread_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setenv("CLAWPIPE_HOME", str(tmp_path / name))
    with pytest.raises(ConfigError, match="MLflow would misread") as refused:
        Home.from_env()
    assert "move or rename it" in refused.value.fix
    assert "write to" not in str(refused.value)


@pytest.mark.parametrize("name", ["my agent", "100%", "a#b", "o'neill", "日本"])
def test_other_signs_stand_in_a_path(tmp_path, monkeypatch, name):
    monkeypatch.setenv("CLAWPIPE_HOME", str(tmp_path / name))
    assert Home.from_env().root == tmp_path / name
