"""YAML of anybody's is read as YAML is, in time and memory of its own size."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from clawpipe.core.basics.plain_yaml import parse_yaml
from clawpipe.core.config import load_config
from clawpipe.core.contracts.odcs import parse_contract
from clawpipe.errors import ConfigError, DataError

# Ten lines that stand for 10**9 strings. PyYAML itself makes them of ten shared lists; it is walking through them that never ends.
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)
FILES = sorted([*Path("configs").rglob("*.yaml"), *Path("data_contracts").rglob("*.yaml")])


@pytest.mark.parametrize("file", FILES, ids=str)
def test_our_own_files_are_read_as_pyyaml_reads_them(file: Path):
    assert parse_yaml(file.read_text()) == yaml.safe_load(file.read_text())


def test_aliases_and_merges_of_a_usual_size_are_taken():
    text = "base: &b {lr: 1, layers: [q, v]}\nthis: {<<: *b, <<: *b, lr: 2}\nthat: [*b, *b]\n1: a\n'1': b\n"
    assert parse_yaml(text) == yaml.safe_load(text)
    assert parse_yaml("") is None


@pytest.mark.parametrize("text", ["train: {lr: 1}\nseed: 2\ntrain: {method: sft}\n", "train:\n  lr: 1\n  'lr': 2\n"])
def test_a_key_that_is_named_twice_is_refused(tmp_path: Path, text: str):
    (tmp_path / "night.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"(?s)stands here a second time.*line 3"):
        load_config(tmp_path / "night.yaml")


@pytest.mark.parametrize(
    "text",
    [BOMB, "train: &t {a: *t}", "train: &t [*t]", "x: " + "[" * 5000, "x: 2024-99-99", "x: " + "9" * 5000],
    ids=["bomb", "mapping in itself", "list in itself", "deep", "no such date", "long number"],
)
def test_yaml_alias_bombs_are_refused_in_one_line_everywhere(tmp_path: Path, text: str):
    file = tmp_path / "night.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as config:
        load_config(file)
    value = text.partition(": ")[2] if text != BOMB else f"{{{BOMB.strip().replace(chr(10), ', ')}}}"
    file.write_text("rounds: 1\n")
    with pytest.raises(ConfigError) as override:
        load_config(file, [f"train={value}"])
    with pytest.raises(DataError) as contract:
        parse_contract(text, "mine.yaml")
    assert [len(error.value.what.splitlines()) for error in (config, override, contract)] == [1, 1, 1]
