"""What a judge said of turns of an imported conversation, from the files to a policy that has learnt from it."""

import json

import numpy as np
import pytest

from clawpipe.core.config.curation import Curation
from clawpipe.core.config.night import EnvironmentConfig, Runtime
from clawpipe.core.config.training import Lora, Opd, Train
from clawpipe.core.contracts.validate import validate
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.data.curation.runner import curate
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest
from clawpipe.learn.annotation.produce import HintSource, annotate_dataset
from clawpipe.learn.evaluation.heldout.draw import make_task_items
from clawpipe.learn.training.methods import weights_of
from clawpipe.learn.training.produce import train_policy
from clawpipe.play.recorded.recompute import recompute_logprobs
from clawpipe.play.recorded.text_rows import render_text

pytestmark = pytest.mark.slow

LETTERS = EnvironmentConfig(name="letters", train_items=1, heldout_items=1)
CPU = Runtime(device="cpu", train_threads=1)
SAID = ["what is {0}?", "it is {0}", "say it loud", "it is {0}!"]
HINT = "The user wants capital letters here."


def records(sessions):
    """OpenClaw-RL's records of sessions of two turns, and its judge's: the first turn was good, the second has a hint."""
    for number in range(sessions):
        said = [text.format(f"thing {number}") for text in SAID]
        for turn, end in ((1, 1), (2, 3)):
            roles = ["user", "assistant"] * 2
            history = [{"role": role, "content": text} for role, text in zip(roles, said[:end], strict=False)]
            yield {"session_id": f"s{number}", "turn": turn, "messages": history, "response_text": said[end]}
        yield {"session_id": f"s{number}", "turn": 1, "score": 1, "votes": [1]}
        yield {"session_id": f"s{number}", "turn": 2, "accepted": True, "hint": HINT, "hint_len": len(HINT), "votes": []}


@pytest.fixture
def imported(home, tmp_path, pool, base):
    """The store, conversations with the log-probs of the base, and what was said about them."""
    file = tmp_path / "records.jsonl"
    file.write_text("".join(f"{json.dumps(record)}\n" for record in records(4)))
    read = ingest(home, [str(file)], Options()).datasets
    store = Store(home.store)
    rendered = render_text(store, read["trajectories"], base, LETTERS).dataset
    scored = recompute_logprobs(store, pool, rendered, base, base, (), text=True, max_tokens=4096).dataset
    return store, scored, read["scores"], make_task_items(store, LETTERS).dataset


@pytest.mark.parametrize(("method", "form"), [("opd", "topk"), ("combine", "token")])
def test_hints_of_turns_in_openclaw_records_teach_those_turns(imported, base, tmp_path, method, form):
    store, trajectories, scores, items = imported
    opd, lora = Opd(top_k=4, form=form), Lora(rank=4, alpha=8)
    config = Train(method=method, opd=opd, lora=lora, optimizer_steps=1, epochs=6, learning_rate=1e-2)
    curation = Curation(credit="turn")
    rows = curate(store, [trajectories], [scores], items, curation, method, weights=weights_of(config)).dataset
    assert validate(store, rows, "samples").filtered == {}
    samples = read_dataset(store, rows).to_pylist()
    wanted = [1] if method == "opd" else [0, 1]  # nothing but a hint is opd's
    assert [[turn["turn"] for turn in row["turns"]] for row in samples] == [wanted] * 4

    hints = HintSource([scores], items, LETTERS)
    policies = {"student": base, "teacher": base}
    how = {"temperature": 1.0, "runtime": CPU, "on_progress": lambda facts: None}
    annotated = annotate_dataset(store, tmp_path / "work", rows, policies, hints, config.opd, pack_tokens=1024, **how)
    for row, score in zip(samples, read_dataset(store, annotated.dataset).to_pylist(), strict=True):
        trained = np.flatnonzero(row["loss_mask"])
        second = trained >= row["turns"][-1]["start"]
        taught = np.ones(len(trained), bool) if score["taught"] is None else np.array(score["taught"])
        assert taught.tolist() == second.tolist()
        gaps = np.abs(np.array(score["teacher"]) - np.array(row["logprobs"])[trained])
        assert gaps[second].max() > 1e-3  # the hint changes what the policy says
        assert gaps[~second].max(initial=0) < 1e-4  # without one the teacher is the policy itself

    trained = train_policy(store, tmp_path / "work", rows, base, annotated.dataset, config, seed=0, **how)
    updates = trained.details["updates"]
    assert trained.model.policy_version != base.policy_version
    assert updates[0]["grad_norm"] > 0
    assert updates[-1]["loss"] < updates[0]["loss"]
    assert (updates[0]["hinted"] == 1) == (method == "opd")
