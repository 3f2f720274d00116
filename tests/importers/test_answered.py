"""A prompt and its answer are read under the names that files have, or rejected: they never become a task without its answer."""

import json

import pytest

from clawpipe.data.importers.read.mapping import read_mapping
from clawpipe.data.importers.read.read import Reader
from clawpipe.data.importers.record import Conversation, Prompt
from tests.importers.reading import read_files

ASKED, FOUR = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}
HELICONE = {
    "request_body": {"model": "m", "messages": [ASKED]},
    "response_body": {"choices": [{"index": 0, "message": FOUR, "finish_reason": "stop"}]},
}
PATHS = ["prompt=request_body.messages", "completion=response_body.choices.0.message"]


def read(tmp_path, *rows):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_files([str(tmp_path / "a.jsonl")])


def mapped(tmp_path, row, *words):
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    reader = Reader(mapping=read_mapping(words))
    return reader.reading, list(reader.file(str(tmp_path / "a.jsonl")))


def said(conversation):
    return [(message.role, message.content) for message in conversation.messages]


@pytest.mark.parametrize("answer", ["4", FOUR, [FOUR], {"content": "4"}, {"choices": [{"message": FOUR}]}])
@pytest.mark.parametrize("asked", ["2+2?", [ASKED], ASKED, {"messages": [ASKED]}])
def test_a_prompt_and_its_answer_in_every_shape(tmp_path, asked, answer):
    [conversation] = read(tmp_path, {"prompt": asked, "completion": answer}).conversations
    assert (said(conversation), conversation.kinds) == ([("user", "2+2?"), ("assistant", "4")], ("main",))


@pytest.mark.parametrize("asking", ["prompt", "instruction", "question", "input", "query"])
@pytest.mark.parametrize("answering", ["completion", "response", "answer", "reply", "output", "chosen_response", "model_output"])
def test_under_every_pair_of_names(tmp_path, asking, answering):
    reading = read(tmp_path, {asking: "2+2?", answering: "4", "source": "x"})
    [conversation] = reading.conversations
    assert (said(conversation), dict(conversation.extra)) == ([("user", "2+2?"), ("assistant", "4")], {"source": "x"})
    assert list(reading.warnings()) == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "completion: missing"),
        (4, "completion: not str or list or dict"),
        ([], "completion: no answer in it"),
        ([ASKED], "completion: no answer in it"),
        ({"choices": []}, "no assistant message"),
        ({"choices": [{"message": FOUR}, {"message": FOUR}]}, "completion: 2 answers"),
        ({"role": "robot", "content": "4"}, "completion[].role: not system, user, assistant or tool"),
    ],
)
def test_what_is_no_answer_is_rejected(tmp_path, answer, reason):
    reading = read(tmp_path, {"prompt": "2+2?", "completion": answer})
    [refused] = reading.refused
    assert (reading.prompts, refused.reason) == ([], reason)


def test_an_answer_under_a_second_name_counts(tmp_path):
    [conversation] = read(tmp_path, {"prompt": "2+2?", "completion": None, "response": "4"}).conversations
    assert said(conversation)[-1] == ("assistant", "4")


@pytest.mark.parametrize(
    "truth", [{"answer": 4}, {"answer": "4", "check": "numeric"}, {"answer": {"name": "sum", "arguments": {}}}]
)
def test_the_truth_of_a_task_is_no_answer(tmp_path, truth):
    reading = read(tmp_path, {"prompt": "2+2?"} | truth)
    [prompt] = reading.prompts
    assert prompt.extra == truth
    assert ["--map completion=answer" in warning for warning in reading.warnings()] == [True]


def test_an_answer_that_is_not_read_is_named(tmp_path):
    reading = read(tmp_path, {"prompt": "p", "gold_response": "x"}, {"prompt": "q", "response_a": "x", "responseB": "y"})
    assert len(reading.prompts) == 2
    assert dict(reading.answers) == {"gold_response": 1, "response_a": 1, "responseB": 1}
    assert all("sounds like an answer" in warning for warning in reading.warnings())


def test_what_belongs_to_a_question_is_asked_with_it(tmp_path):
    row = {"instruction": "Who?", "context": "Ann wrote it.", "response": "Ann", "system_prompt": "Be brief."}
    [conversation] = read(tmp_path, row).conversations
    assert said(conversation) == [("system", "Be brief."), ("user", "Who?\nAnn wrote it."), ("assistant", "Ann")]


def test_a_cut_answer_is_known_as_cut(tmp_path):
    half = FOUR | {"finish_reason": "length"}
    rows = [
        {"response": "half", "finish_reason": "length"},
        {"response": "half", "finish_reason": None},
        {"response": half},
        {"completion": [half]},
        {"response": "a", "stop_reason": "end_turn"},
        {"response": "a"},
    ]
    found = read(tmp_path, *({"prompt": "p"} | row for row in rows)).conversations
    assert [one.status for one in found] == ["truncated", "aborted", "truncated", "truncated", "completed", None]


def test_chosen_and_rejected_responses_are_a_preference(tmp_path):
    reading = read(tmp_path, {"prompt": "p", "chosen_response": "good", "rejected_response": "bad"})
    [pair] = reading.preferences
    assert (pair.chosen[0].content, pair.rejected[0].content) == ("good", "bad")


def test_a_mapping_leads_to_an_answer_as_a_message(tmp_path):
    _, [helicone] = mapped(tmp_path, HELICONE, *PATHS)
    observation = {"type": "GENERATION", "sessionId": "s", "input": [ASKED], "output": FOUR}
    _, [langfuse] = mapped(tmp_path, observation, "prompt=input", "completion=output")
    assert said(helicone) == said(langfuse) == [("user", "2+2?"), ("assistant", "4")]
    assert isinstance(helicone, Conversation)


def test_a_mapping_to_no_answer_rejects_the_row(tmp_path):
    row = HELICONE | {"response_body": {"error": "overloaded"}}
    reading, [refused] = mapped(tmp_path, row, *PATHS)
    assert not isinstance(refused, Prompt)
    assert reading.reasons() == {"response_body.choices.0.message: missing": 1}


@pytest.mark.parametrize(
    ("asking", "answering"),
    [
        *(
            ("user", "assistant"),
            ("human", "bot"),
            ("Human", "Assistant"),
            ("q", "a"),
            ("Question", "Answer"),
            ("Context", "Response"),
        ),
        *(("inputs", "targets"), ("problem", "solution"), ("user_message", "ai_response"), ("input_text", "output_text")),
    ],
)
def test_words_that_say_a_prompt_only_beside_an_answer(tmp_path, asking, answering):
    [conversation] = read(tmp_path, {asking: "2+2?", answering: "4", "n": 1}).conversations
    assert (said(conversation), dict(conversation.extra)) == ([("user", "2+2?"), ("assistant", "4")], {"n": 1})


def test_a_user_beside_a_prompt_stays_a_name(tmp_path):
    [conversation] = read(tmp_path, {"prompt": "2+2?", "completion": "4", "user": "ann", "assistant": "gpt"}).conversations
    assert (said(conversation), conversation.user) == ([("user", "2+2?"), ("assistant", "4")], "ann")
    assert read(tmp_path, {"user": "ann", "model": ""}).reasons() == {"no known format": 1}


def test_columns_may_spell_messages_as_texts(tmp_path):
    asked, four = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}
    rows = (
        {"messages": json.dumps([asked, four]), "n": 1},
        {"prompt": json.dumps([asked]), "completion": json.dumps(four), "n": 1},
        {"input": json.dumps({"messages": [asked]}), "output": json.dumps({"choices": [{"message": four}]}), "n": 1},
    )
    for row in rows:
        [conversation] = read(tmp_path, row).conversations
        assert said(conversation) == [("user", "2+2?"), ("assistant", "4")]


def test_an_answer_in_json_to_a_text_stays_a_text(tmp_path):
    answer = json.dumps([{"role": "admin", "name": "ann"}])
    [conversation] = read(tmp_path, {"prompt": "Who?", "completion": answer}).conversations
    assert said(conversation)[-1] == ("assistant", answer)


def test_a_user_and_a_model_beside_more_are_names(tmp_path):
    assert not read(tmp_path, {"user": "ann", "model": "gpt-5", "cost": 0.1}).conversations
    [conversation] = read(tmp_path, {"user": "2+2?", "model": "4", "system": "Count."}).conversations
    assert said(conversation) == [("system", "Count."), ("user", "2+2?"), ("assistant", "4")]


def test_texts_that_a_template_wrote_are_messages(tmp_path):
    prompt = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    rows = (
        {"prompt": prompt, "completion": "4<|im_end|>\n"},
        {"text": f"{prompt}4<|im_end|>\n"},
        {"request": {"prompt": prompt, "model": "m"}, "response": {"choices": [{"text": "4<|im_end|>"}]}},
        {"request": {"messages": [{"role": "user", "content": "2+2?"}]}, "response": {"message": {"content": "4<|im_end|>"}}},
    )
    for row in rows:
        [conversation] = read(tmp_path, row).conversations
        assert said(conversation) == [("user", "2+2?"), ("assistant", "4")]
    [pair] = read(tmp_path, {"prompt": prompt, "chosen": "4<|im_end|>", "rejected": "5<|im_end|>"}).preferences
    assert [part.content for part in (*pair.prompt, *pair.chosen, *pair.rejected)] == ["2+2?", "4", "5"]
