import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.config.curation import Near
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.data.similarity.heldout import near_heldout, near_items, prepare

SHORT = "What does the iron kettle cost today?"
WORDS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=30)


def near(messages, questions):
    return next((found for _, found in near_items([messages], questions, 0.8)), None)


def item(make, name, question, split="heldout"):
    return {"item_id": name, "split": split, "messages": [make.message("user", question)]}


def test_thirteen_words_in_a_row_quote_a_question(make):
    words = make.text(1, 40).split()
    questions = prepare([item(make, "h", " ".join(words))], 13)
    for role in ("user", "assistant", "tool"):
        assert near([make.message(role, f"well, {' '.join(words[20:33]).upper()}!")], questions) == ("h", "n-gram")
    assert near([make.message("user", " ".join(words[20:32]))], questions) is None
    assert near([make.message("user", " ".join(words[:7])), make.message("user", " ".join(words[7:13]))], questions) is None
    assert near([make.message("assistant", "", ("search", f'{{"q": "{" ".join(words[:13])}"}}'))], questions) == ("h", "n-gram")


def test_a_short_question_is_quoted_as_a_whole(make):
    questions = prepare([item(make, "h", SHORT)], 13)
    assert near([make.message("user", f"he asked: {SHORT}")], questions) == ("h", "n-gram")
    assert near([make.message("user", "What does the iron kettle cost?")], questions) is None


def test_short_questions_are_left_to_exact_comparison(make):
    questions = prepare([item(make, "h", "How are you?")], 13)
    assert near([make.message("user", "How are you?")], questions) is None


@given(WORDS, WORDS, st.integers(5, 8))
def test_quoting_means_a_run_of_words_in_common(question, text, words):
    message = {"role": "user", "content": " ".join(text), "tool_calls": []}
    asked = {"item_id": "h", "split": "heldout", "messages": [{"role": "user", "content": " ".join(question), "tool_calls": []}]}
    size = min(words, len(question))
    runs = {tuple(question[i : i + size]) for i in range(len(question) - size + 1)}
    expected = len(question) >= 5 and any(tuple(text[i : i + size]) in runs for i in range(len(text) - size + 1))
    assert (near([message], prepare([asked], words)) == ("h", "n-gram")) == expected


@given(WORDS, WORDS)
def test_nearly_asked_means_the_jaccard_similarity_of_shingles(question, text):
    message = {"role": "user", "content": " ".join(text), "tool_calls": []}
    asked = {"item_id": "h", "split": "heldout", "messages": [{"role": "user", "content": " ".join(question), "tool_calls": []}]}
    size = min(5, len(text))
    left = {tuple(question[i : i + 5]) for i in range(len(question) - 4)}
    right = {tuple(text[i : i + size]) for i in range(len(text) - size + 1)} if text else set()
    similar = bool(left & right) and len(left & right) >= 0.8 * len(left | right)
    quoted = any(text[i : i + len(question)] == question for i in range(len(text) - len(question) + 1))
    expected = ("h", "n-gram" if quoted else "near-duplicate") if similar or (quoted and len(question) >= 5) else None
    assert near([message], prepare([asked], 60)) == expected


@given(st.lists(WORDS, min_size=1, max_size=3), st.lists(st.lists(WORDS, max_size=3), max_size=5))
def test_conversations_are_judged_together_as_each_alone(questions, conversations):
    def said(text):
        return {"role": "user", "content": " ".join(text), "tool_calls": []}

    items = [{"item_id": f"h{i}", "split": "heldout", "messages": [said(text)]} for i, text in enumerate(questions)]
    prepared, told = prepare(items, 6), [list(map(said, texts)) for texts in conversations]
    together = dict(near_items(told, prepared, 0.8))
    assert [together.get(place) for place in range(len(told))] == [near(messages, prepared) for messages in told]


def test_a_dataset_is_judged_row_by_row(shelf, make):
    long = make.text(5, 60)
    items = [item(make, "h1", long), item(make, "h2", SHORT), item(make, "t", make.text(6), "train")]
    schema = schema_of("task_items")
    table = pa.Table.from_pylist([dict.fromkeys(schema.names) | one for one in items], schema=schema)
    rows = [
        make.row("clean", make.text(7)),
        make.row("trained", make.text(6)),
        make.row("quotes", make.text(8) + " " + " ".join(long.split()[3:20])),
        make.row("asks", "ok", question=make.changed(long, 1, 1)),
        make.row("asks-short", "ok", question=SHORT),
        make.row("system", "ok", messages=[make.message("system", long), make.message("assistant", "ok")]),
    ]
    held = publish_dataset(shelf.store, "task_items", [table])
    result = near_heldout(shelf.store, shelf.trajectories(rows), held, Near(heldout_words=13))
    found = read_dataset(shelf.store, result.dataset).to_pylist()
    assert [(row["trajectory_id"], row["item_id"], row["how"]) for row in found] == [
        ("quotes", "h1", "n-gram"),
        ("asks", "h1", "n-gram"),
        ("asks-short", "h2", "n-gram"),
    ]
    relaxed = near_heldout(shelf.store, shelf.trajectories(rows), held, Near(heldout_words=60))
    how = {row["trajectory_id"]: row["how"] for row in read_dataset(shelf.store, relaxed.dataset).to_pylist()}
    assert how == {"asks": "near-duplicate", "asks-short": "n-gram"}
    assert relaxed.details == {"n-gram": 1, "near-duplicate": 1}
