"""Names of other libraries' environments, and what is said where a library is not there."""

from __future__ import annotations

import sys

import pytest

from clawpipe.errors import ConfigError
from clawpipe.play.environments.discovery import (
    environment_name,
    is_built_in,
    list_libraries,
    load_environment,
    show_environment,
    source_digest,
)
from clawpipe.play.environments.libraries.naming import LIBRARIES, file_in, install_words, name_of


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("gymnasium:FrozenLake-v1", "gymnasium-FrozenLake-v1"),
        ("skyrl-gym:gsm8k", "skyrl-gym-gsm8k"),
        ("verifiers:owner/gsm8k", "verifiers-gsm8k"),
        ("openenv:http://127.0.0.1:8000/", "openenv-127.0.0.1-8000"),
        ("atropos:../envs/sums.py:Sums", "atropos-sums-Sums"),
        ("bfcl:multi_turn_base", "bfcl-multi_turn_base"),
        ("reasoning-gym:chain_sum=2,leg_counting", "reasoning-gym-chain_sum-2-leg_counting"),
    ],
)
def test_its_name_may_be_a_label_wherever_it_lies(name, own):
    assert environment_name(name) == own
    assert not is_built_in(name)


def test_a_long_name_is_cut_to_what_a_label_holds():
    assert len(name_of("gymnasium", "x" * 100)) == 48


@pytest.mark.parametrize(("word", "file"), [("a/b.py", "b.py"), ("b.py:Mine", "b.py"), ("FrozenLake-v1", None)])
def test_a_file_is_read_out_of_a_name(word, file):
    found = file_in(word)
    assert (found and found.name) == file


def test_each_library_is_listed_without_being_there():
    listed = {info.reference: info for info in list_libraries()}
    assert {f"{library}:ID" for library in LIBRARIES} == listed.keys()
    assert all(listed[f"{library}:ID"].summary for library in LIBRARIES)


@pytest.mark.parametrize("library", sorted(LIBRARIES))
def test_its_options_are_shown(library):
    info, options = show_environment(f"{library}:x.py")
    assert info.name == library
    assert "word" not in {option.name for option in options}
    assert all(option.description for option in options)


@pytest.mark.parametrize("library", sorted(LIBRARIES))
def test_what_is_not_installed_says_the_command(library, tmp_path):
    options = {"file": str(tmp_path / "x")} if library == "skyrl-gym" else {}
    with pytest.raises(ConfigError) as caught:
        load_environment(f"{library}:{'multi_turn_base' if library == 'bfcl' else 'x'}", options)
    assert "\n" not in str(caught.value.what)
    assert f"{sys.executable} -m pip install {install_words(library)}" in str(caught.value.fix)


def test_an_option_that_it_does_not_have_is_named():
    with pytest.raises(ConfigError, match=r"gymnasium:X does not take these options.*speed"):
        load_environment("gymnasium:X", {"speed": 1})


def test_an_edited_file_is_another_source(tmp_path):
    file = tmp_path / "env.py"
    file.write_text("rate = 1\n")
    before = source_digest(f"atropos:{file}:Sums")
    assert source_digest(f"atropos:{file}:Sums") == before
    assert source_digest(f"atropos:{file}:Other") != before
    file.write_text("rate = 2\n")
    assert source_digest(f"atropos:{file}:Sums") != before


@pytest.mark.parametrize(
    ("name", "module"),
    [("gymnasium:own_maze:Maze-v0", "own_maze"), ("skyrl-gym:own.sums:x", "own"), ("verifiers:ann/my-sums", "my_sums")],
)
def test_an_edited_module_is_another_source(name, module, tmp_path, monkeypatch):
    """The module is installed by its folder, as a user's own is: whatever is edited there, its version stays."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    without = source_digest(name)
    (package := tmp_path / module).mkdir()
    for file in (package / "__init__.py", package / "inner" / "maze.py"):
        file.parent.mkdir(exist_ok=True)
        file.write_text("rate = 1\n")
    digests = [without]
    for text in ("rate = 2\n", "rate = 3\n"):
        file.write_text(text)
        digests += [source_digest(name), source_digest(name)]
    assert [digests.index(one) for one in digests] == [0, 1, 1, 3, 3]


def test_another_version_of_the_library_is_another_source(monkeypatch):
    before = source_digest("gymnasium:X")
    monkeypatch.setattr("clawpipe.play.environments.discovery.installed_version", lambda library: "9.9")
    assert source_digest("gymnasium:X") != before
