"""`clawpipe inspect` shows what would be trained on, and is loud about files that are of no use."""

import json

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from typer.testing import CliRunner

from clawpipe.cli.main import app

SAID = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "the reply"}]
GROUP = {
    "tokens": [[0, 1, 2, 3]],
    "masks": [[-100, -100, 2, 3]],
    "scores": [0.5],
    "messages": [SAID],
    "inference_logprobs": [[1.0, 1.0, -0.5, -1.5]],
    "advantages": [[0, 0, 2, -1]],
}


@pytest.fixture
def shown(tmp_path):
    def show(*rows, options=()):
        file = tmp_path / "rows.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        result = CliRunner().invoke(app, ["inspect", str(file), *options], env={"COLUMNS": "200"})
        assert result.exit_code == 0, result.output
        return result.output

    return show


def lines_with(output, word):
    return [line.split(word, 1)[1].strip() for line in output.splitlines() if word in line]


def test_tokens_are_told_apart_by_mask_and_advantage(shown):
    output = shown(GROUP)
    assert lines_with(output, "context ") == ["0 1"]
    assert lines_with(output, "trained + ") == ["2  (log-prob -0.5, advantage +2)"]
    assert lines_with(output, "trained - ") == ["3  (log-prob -1.5, advantage -1)"]


def test_tokens_are_text_where_there_is_a_tokenizer(shown, tmp_path):
    tokenizer = Tokenizer(WordLevel({"what": 0, "else": 1, "nothing": 2, "more": 3}, unk_token="what"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    output = shown(GROUP | {"advantages": None}, options=("--tokenizer", str(tmp_path)))
    assert lines_with(output, "trained ") == ["nothing more  (log-prob -1)"]


def test_files_of_no_use_are_told(shown):
    side = {"messages": SAID, "turn_type": "heartbeat", "session_id": "unknown"}
    judge = {"session_id": "s", "turn": 1, "score": 1, "votes": [1]}
    warnings = json.loads(shown(side, side, judge, options=("--json",)))["warnings"]
    assert len(warnings) == 3
    for words, warning in zip(
        ("every turn is a side turn", "no session id in any record", "1 judge record"), warnings, strict=True
    ):
        assert words in warning
    good = shown(side, {"messages": SAID, "session_id": "a"}, options=("--json",))
    assert json.loads(good)["warnings"] == []
    assert "WARNING" in shown(side)


def test_sessions_status_tools_and_scores_are_counted(shown):
    row = {
        "conversations": [
            {"from": "human", "value": "q"},
            {"from": "gpt", "value": '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'},
            {"from": "tool", "value": '<tool_response>\n{"content": {"error": "no"}}\n</tool_response>'},
            {"from": "gpt", "value": "done"},
        ],
        "completed": True,
    }
    chats = [{"messages": SAID, "session_id": name} for name in ("a", "b", "a")]
    facts = json.loads(shown(row, GROUP, *chats, options=("--json",)))
    assert (facts["conversations"], facts["sessions"], facts["scored"]) == (5, 2, 2)
    assert (facts["tool_calls"], facts["tool_errors"]) == (1, 1)
    assert facts["status"] == {"completed": 1, "unknown": 4}
    assert facts["scores"] == {"custom": 1, "verifier": 1}


def test_a_terminal_obeys_nothing_that_a_file_says(shown):
    output = shown({"messages": [{"role": "user", "content": "\x1b[2Jgone"}, SAID[1]], "session_id": "a\x1b]0;title\x07"})
    assert "gone" in output
    assert not any(character in output for character in "\x1b\x07")


def test_preferences_and_prompts_are_shown(shown):
    output = shown({"prompt": "p", "chosen": "good", "rejected": "bad"}, {"prompt": "the task"})
    assert lines_with(output, "chosen assistant") == ["good"]
    assert lines_with(output, "rejected assistant") == ["bad"]
    assert "the task" in output
    assert "preferences: 1" in output


def test_lines_of_another_format_are_refused(shown):
    facts = json.loads(shown({"prompt": "p"}, {"messages": SAID}, options=("--json", "--format", "chat")))
    assert facts["refused"] == {"not of the format chat": 1}


@pytest.mark.parametrize(("options", "error"), [(("--format", "xml"), "no format"), (("--tokenizer", "nowhere"), "no tokenizer")])
def test_wrong_options_are_told(tmp_path, options, error):
    (tmp_path / "a.jsonl").write_text("{}\n")
    result = CliRunner().invoke(app, ["inspect", str(tmp_path), *options])
    assert error in str(result.exception)


def test_a_narrow_terminal_breaks_no_word(tmp_path):
    words = [f"word{number}" for number in range(40)]
    said = [{"role": "user", "content": "q"}, {"role": "assistant", "content": " ".join(words) + "\n  indented code"}]
    folder = tmp_path / "folder-with-a-rather-long-name-of-many-parts" / "and-another-one-below-it-with-a-long-name"
    folder.mkdir(parents=True)
    (folder / "rows.jsonl").write_text(json.dumps({"messages": said, "turn_type": "heartbeat"}) + "\nbroken\n")
    result = CliRunner().invoke(app, ["inspect", str(folder)], env={"COLUMNS": "80"})
    lines = result.output.splitlines()
    shown = [line for line in lines if "word" in line]
    assert len(shown) == 5
    assert {line[:18] for line in shown} == {"assistant (side)  ", " " * 18}
    assert [word for line in shown for word in line[18:].split()] == words
    assert " " * 18 + "  indented code" in lines
    assert any(line.endswith(f" {folder}/rows.jsonl:2") for line in lines)
    assert all(len(line) <= 80 for line in lines if str(folder) not in line)


def test_help_breaks_where_the_terminal_ends(monkeypatch):
    output = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "80"}).output
    told = output[output.index("Finished steps") : output.index("Options")].splitlines()[:-2]
    assert len(told) == 3
    assert all(len(line.rstrip()) > 60 for line in told[:-1])  # no line is left half empty


TALK = {
    "session_id": "s",
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "old", "weight": 0},
        {"role": "user", "content": "again"},
        {"role": "assistant", "content": "new"},
    ],
}


def seen(tmp_path, record, *words):
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n")
    result = CliRunner().invoke(app, ["inspect", str(tmp_path / "a.jsonl"), "--tokens", "--model", "random", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_row_is_shown_as_the_model_will_see_it(tmp_path):
    lines = seen(tmp_path, TALK).splitlines()
    assert "         context  <|im_start|>user↵" in lines
    assert "         trained  new<|im_end|>" in lines
    assert not any("trained  old" in line for line in lines)
    assert max(len(line) for line in lines if "context  " in line or "trained  " in line) <= 80


def test_ends_and_masks_are_there_for_programs(tmp_path):
    [row] = json.loads(seen(tmp_path, TALK, "--json"))["rows"]
    [trained] = [run for run in row["runs"] if run["trained"]]
    assert (trained["text"], trained["end"], trained["tokens"]) == ("new<|im_end|>", "<|im_end|>", row["trained"])
    assert (len(row["ids"]), sum(row["mask"]), row["recorded"]) == (row["tokens"], row["trained"], False)
    cut = TALK | {"messages": [*TALK["messages"][:-1], {"role": "assistant", "content": "ne", "finish_reason": "length"}]}
    [row] = json.loads(seen(tmp_path, cut, "--json"))["rows"]
    assert [(run["text"], run["end"]) for run in row["runs"] if run["trained"]] == [("ne", "")]


def test_recorded_tokens_are_shown_as_they_were_sampled(tmp_path):
    entries = [{"token": "x", "logprob": -0.5}, {"token": "y", "logprob": -0.25}]
    choice = {"message": {"role": "assistant", "content": "4"}, "token_ids": [20, 21], "logprobs": {"content": entries}}
    record = {
        "request": {"messages": [{"role": "user", "content": "q"}]},
        "response": {"choices": [choice | {"finish_reason": "stop"}]},
    }
    record["response"]["prompt_token_ids"] = [10, 11]
    [row] = json.loads(seen(tmp_path, record, "--json"))["rows"]
    assert (row["ids"], row["mask"], row["recorded"]) == ([10, 11, 20, 21], [False, False, True, True], True)
