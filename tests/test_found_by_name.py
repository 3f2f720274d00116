"""A stranger finds a thing by guessing: the words of a question, typed into a file finder, leave one file."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [path.relative_to(ROOT).as_posix() for top in ("clawpipe", "flows", "tasks") for path in (ROOT / top).rglob("*.*")]
ANSWERS = {  # question, and the words that are typed
    ("Where is it decided whether a candidate is promoted?", "verdict gate"): "clawpipe/learn/evaluation/verdict/gate.py",
    ("Which held-out items does a night ask?", "heldout draw"): "clawpipe/learn/evaluation/heldout/draw.py",
    ("Where is GRPO's loss?", "losses policy"): "clawpipe/learn/training/losses/policy.py",
    ("Where is LoRA attached?", "training model adapter"): "clawpipe/learn/training/model/adapter.py",
    ("What reads an export of ChatGPT?", "importers chatgpt"): "clawpipe/data/importers/formats/chats/chatgpt.py",
    ("What reads a stream of OpenAI's Responses?", "wire responses_in"): "clawpipe/data/wire/dialects/responses_in.py",
    ("Which secrets are taken out of logs?", "privacy rules.yaml"): "clawpipe/data/privacy/rules.yaml",
    ("How is a forgotten person kept out?", "tombstones"): "clawpipe/data/forgotten/tombstones.py",
    ("How does the gateway know whose turn it is?", "gateway attribution"): "clawpipe/serve/gateway/attribution.py",
    ("What isolates programs that nobody has read?", "sandbox bubblewrap"): "clawpipe/play/sandbox/bubblewrap.py",
    ("Which lock keeps two nights apart?", "nights locks"): "clawpipe/record/nights/locks.py",
    ("What does the report look like?", "reporting html.py"): "clawpipe/record/reporting/html.py",
    (
        "How much memory will a night need?",
        "planning memory",
    ): "clawpipe/model/planning/free_memory.py clawpipe/model/planning/memory.py",
    ("What writes a GGUF file?", "gguf write"): "clawpipe/serve/export/gguf/write.py",
}


@pytest.mark.parametrize(("asked", "found"), ANSWERS.items(), ids=[words for _, words in ANSWERS])
def test_the_words_of_a_question_leave_few_files(asked, found):
    left = sorted(file for file in FILES if all(word in file for word in asked[1].split()) and "__pycache__" not in file)
    assert left == found.split()
