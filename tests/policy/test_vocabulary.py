"""Whether two models share a vocabulary."""

import json

import pytest
from tokenizers import AddedToken, Tokenizer, models

from clawpipe.errors import ConfigError
from clawpipe.model.policy.tiny import byte_tokenizer
from clawpipe.model.policy.vocabulary import require_one_vocabulary


def saved(directory, tokenizer):
    directory.mkdir()
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


def test_the_same_tokens_under_the_same_ids_are_one_vocabulary(tmp_path):
    first, second = (saved(tmp_path / name, byte_tokenizer().backend_tokenizer) for name in ("a", "b"))
    other = json.loads((second / "tokenizer.json").read_text())
    (second / "tokenizer.json").write_text(json.dumps(other | {"padding": None, "truncation": None}, indent=4))  # bytes may differ
    require_one_vocabulary(first, second, where="here")


def test_another_token_or_another_order_is_another_vocabulary(tmp_path):
    one = saved(tmp_path / "one", byte_tokenizer().backend_tokenizer)
    more = byte_tokenizer().backend_tokenizer
    more.add_special_tokens([AddedToken("<extra>", special=True)])
    with pytest.raises(ConfigError, match="vocabulary is not the student's"):
        require_one_vocabulary(one, saved(tmp_path / "more", more), where="here")
    unigrams = [saved(tmp_path / name, Tokenizer(models.Unigram([*map(tuple, pairs)], 0))) for name, pairs in UNIGRAMS.items()]
    require_one_vocabulary(unigrams[0], unigrams[1], where="here")  # the same order, other scores
    with pytest.raises(ConfigError, match="vocabulary is not the student's"):
        require_one_vocabulary(unigrams[0], unigrams[2], where="here")


UNIGRAMS = {
    "ab": [["<unk>", 0.0], ["a", -1.0], ["b", -2.0]],
    "scores": [["<unk>", 0.0], ["a", -3.0], ["b", -2.0]],
    "ba": [["<unk>", 0.0], ["b", -1.0], ["a", -2.0]],
}


def test_a_model_without_tokenizer_file_is_refused(tmp_path):
    one = saved(tmp_path / "one", byte_tokenizer().backend_tokenizer)
    with pytest.raises(ConfigError, match="cannot be read"):
        require_one_vocabulary(one, tmp_path / "none", where="here")
