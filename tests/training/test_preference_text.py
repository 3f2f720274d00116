"""Pairs that are text only: their rendering, and that they are trained as recorded pairs are."""

import json
import math
import shutil

import numpy as np
import pyarrow as pa
import pytest
import torch

from clawpipe.core.config.environment import EnvironmentSpec
from clawpipe.core.config.training import Dpo, Lora
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.core.store.datasets import write_parquet
from clawpipe.errors import ConfigError, DataError
from clawpipe.learn.training.data.samples import Readable
from clawpipe.learn.training.data.text_pairs import load_text_pairs
from clawpipe.learn.training.model.adapter import attach_trainable, save_adapter
from clawpipe.learn.training.request import Reference, Rendering
from clawpipe.learn.training.trainers.preference import training_job
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.text import renderers
from clawpipe.model.policy.tiny import byte_tokenizer
from clawpipe.play.environments.openings import openings

TOOLS = (ToolSpec("stock", "How many are left.", {"item": "string"}),)
PREAMBLE = (Message("system", "You keep a shop."),)
CALL = ToolCall("call_0_0", "stock", '{"item": "kettle"}')


@pytest.fixture
def tokenizer():
    return byte_tokenizer()


@pytest.fixture
def renderer(tokenizer):
    return Renderer(tokenizer, "pythonic", TOOLS)


@pytest.fixture
def stored(tmp_path):
    """stored((prompt, chosen, rejected), ...): a file of text-only pairs."""
    parts = ("prompt", "chosen", "rejected")

    def write(*pairs, **changes):
        rows = [
            {
                "pair_id": f"p{number}",
                "item_id": "i",
                "group_id": "g",
                "strategy": "imported",
                "chosen_id": "a",
                "rejected_id": "b",
                "prompt_tokens": 0,
                "temperature": 0.0,
                "weight": 1.0,
                "tokens": "none",
            }
            | {f"{side}_{stream}": [] for side in parts[1:] for stream in ("token_ids", "loss_mask")}
            | {part: [message.as_dict() for message in messages] for part, messages in zip(parts, pair, strict=True)}
            | changes
            for number, pair in enumerate(pairs)
        ]
        path = tmp_path / "pairs.parquet"
        write_parquet(pa.Table.from_pylist(rows, schema_of("preference_pairs")), path)
        return [str(path)]

    return write


def pair(prompt="How many kettles?", chosen="3", rejected="none at all"):
    return ((Message("user", prompt),), (Message("assistant", chosen),), (Message("assistant", rejected),))


def decode(tokenizer, ids):
    return tokenizer.decode(ids, skip_special_tokens=False)


def trained(tokenizer, row):
    """The text of what a row trains."""
    return decode(tokenizer, row.token_ids[row.trained])


def shown(tokenizer, row):
    """The text before the first trained token."""
    return decode(tokenizer, row.token_ids[: row.trained[0]])


def test_a_pair_is_rendered_with_preamble_tools_and_calls(stored, renderer, tokenizer):
    prompt = (Message("user", "Kettles?"),)
    call, words = Message("assistant", "", (CALL,)), Message("assistant", "I do not know.")
    (chosen, rejected), filtered = load_text_pairs(stored((prompt, (call,), (words,))), lambda tools: renderer, PREAMBLE)
    assert filtered == {}
    start = renderer.prompt([*PREAMBLE, *prompt])
    assert list(chosen.token_ids[: len(start)]) == list(rejected.token_ids[: len(start)]) == start
    assert shown(tokenizer, chosen) == (
        "<|im_start|>system\nYou keep a shop.\nTools: stock(item)<|im_end|>\n"
        "<|im_start|>user\nKettles?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert trained(tokenizer, chosen) == 'stock(item="kettle")<|im_end|>'
    assert trained(tokenizer, rejected) == "I do not know.<|im_end|>"


@pytest.mark.parametrize(
    ("system", "tools", "shows"),
    [
        ("Be brief.", None, "Be brief."),
        ("Be brief.", '[{"name": "order", "parameters": {"properties": {"item": {}}}}]', "Be brief.\nTools: order(item)"),
        ("", '[{"type": "function", "function": {"name": "order"}}]', "Tools: order()"),
    ],
)
def test_a_pair_keeps_its_system_message_and_tools(stored, tokenizer, system, tools, shows):
    prompt = (*([Message("system", system)] if system else []), Message("user", "Kettles?"))
    given = stored((prompt, (Message("assistant", "3"),), (Message("assistant", "4"),)), tools=tools)
    rows, _ = load_text_pairs(given, renderers(tokenizer, "pythonic", TOOLS), PREAMBLE)
    for row in rows:
        assert decode(tokenizer, row.token_ids).startswith(f"<|im_start|>system\n{shows}<|im_end|>\n<|im_start|>user\nKettles?")


def test_a_history_with_assistant_turns_belongs_to_the_prompt(stored, renderer, tokenizer):
    history = (
        Message("user", "Kettles?"),
        Message("assistant", "", (CALL,)),
        Message("tool", "3", tool_call_id="call_0_0", name="stock"),
    )
    (chosen, _), _ = load_text_pairs(
        stored((history, (Message("assistant", "3"),), (Message("assistant", "4"),))), lambda tools: renderer, ()
    )
    assert 'stock(item="kettle")<|im_end|>' in shown(tokenizer, chosen)
    assert trained(tokenizer, chosen) == "3<|im_end|>"


def test_of_a_side_of_several_turns_the_policys_own_are_trained(stored, renderer, tokenizer):
    """Neither a tool's result nor what the user said between them."""
    prompt, (good,), (bad,) = pair()
    turns = (
        *(Message("assistant", "", (CALL,)), Message("tool", "3", tool_call_id="call_0_0", name="stock"), good),
        *(Message("user", "Sure?"), Message("assistant", "Yes.")),
    )
    (chosen, rejected), filtered = load_text_pairs(stored((prompt, turns, (bad,))), lambda tools: renderer, ())
    assert filtered == {}
    assert trained(tokenizer, chosen) == 'stock(item="kettle")<|im_end|>3<|im_end|>Yes.<|im_end|>'
    assert "Sure?" in decode(tokenizer, chosen.token_ids)
    assert trained(tokenizer, rejected) == "none at all<|im_end|>"


def test_text_that_spells_a_marker_stays_text(stored, renderer):
    (chosen, _), _ = load_text_pairs(stored(pair(chosen="<|im_end|>")), lambda tools: renderer, ())
    ids = list(chosen.token_ids[chosen.trained])
    assert ids.count(renderer.eos_id) == 1
    assert len(ids) == len("<|im_end|>") + 1


def test_pairs_that_cannot_be_trained_are_filtered_by_reason(stored, renderer):
    prompt, (good,), (bad,) = pair()
    unwritable = Message("assistant", "", (ToolCall("c", "no name", "{}"),))
    no_object = Message("assistant", "", (ToolCall("c", "stock", "[1]"),))
    rows, filtered = load_text_pairs(
        stored(
            (prompt, (good,), (bad,)),
            (prompt, (Message("user", "?"), good), (bad,)),
            (prompt, (good,), ()),
            (prompt, (unwritable,), (bad,)),
            (prompt, (good,), (no_object,)),
            (prompt, (good, Message("user", "?"), no_object), (bad,)),
        ),
        lambda tools: renderer,
        (),
    )
    assert len(rows) == 2
    assert filtered == {"no_assistant_turn_after_the_prompt": 2, "calls_cannot_be_written": 3}


def test_a_pair_with_a_long_side_is_filtered(stored, renderer):
    pairs = stored(pair(), pair(rejected="no " * 40), pair("how " * 40))
    (chosen, rejected), filtered = load_text_pairs(pairs, lambda tools: renderer, (), Readable(longest=100))
    assert max(len(chosen.token_ids), len(rejected.token_ids)) <= 100
    assert filtered == {"too_long": 2}


def test_a_request_says_how_long_a_pair_may_be(text_request):
    whole = training_job(text_request("whole"))
    longest = max(len(row.token_ids) for row in whole.rows)
    assert len(training_job(text_request("fits", max_tokens=longest)).rows) == len(whole.rows)
    shorter = training_job(text_request("shorter", max_tokens=longest - 1))
    assert (len(shorter.rows), shorter.filtered) == (len(whole.rows) - 2, {"too_long": 1})


def test_pairs_of_one_prompt_fill_all_steps(text_request):
    job = training_job(text_request("job"))  # three pairs of one group
    assert len(job.plan(job.rows, 10_000, 3, 0)) == 3


def test_nothing_to_train_on_is_a_data_error(stored, renderer):
    with pytest.raises(DataError, match="no preference pair remains"):
        load_text_pairs(stored(pair(), weight=math.nan), lambda tools: renderer, ())


ADAPTER = "adapter/adapter_model.safetensors"
THREE = (pair(), pair("Pans?", "12", "x"), pair("Cups?", "none left", "2"))


@pytest.fixture
def text_request(request_for, stored, tokenizer, tmp_path):
    """text_request(name, train={}, pairs=None, ...): a request of text pairs, which are rendered for the shop."""
    tokenizer.save_pretrained(tmp_path / "base")
    rendering = Rendering(opening=openings(EnvironmentSpec())[0], tool_call_format="pythonic")
    lora = {"rank": 4, "alpha": 8, "dropout": 0.0}

    def make(name, train=None, pairs=THREE, weight=1.0, **changes):
        settings = {"method": "dpo", "pack_tokens": 4096, "optimizer_steps": 1, "epochs": 1, "lora": lora} | (train or {})
        facts = {"samples": stored(*pairs, weight=weight), "token_scores": (), "rendering": rendering} | changes
        return request_for(name, settings, **facts)

    return make


@pytest.fixture
def fit(here):
    """fit(request): train; the metrics of each update."""
    return lambda request: [json.loads(line) for line in (here(request) / "metrics.jsonl").read_text().splitlines()]


def sums_of(model, request, tokenizer):
    """For each pair the log-prob of its sides and their lengths, by the model's ordinary forward."""
    opening = request.rendering.opening
    rows, _ = load_text_pairs(request.samples, renderers(tokenizer, "pythonic", opening.specs()), opening.messages())
    return [[(side_sum(model, row), len(row.trained)) for row in sides] for sides in sides_of(rows)]


def sides_of(rows):
    return zip(rows[0::2], rows[1::2], strict=True)


def side_sum(model, row):
    return sum(logprobs(model, row))


def test_it_starts_without_a_margin(fit, text_request):
    (step,) = fit(text_request("one", {"dpo": Dpo(nll_coef=0).model_dump()}))
    assert step["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert (step["margin"], step["accuracy"], step["nonfinite"]) == (0, 0, 0)


def test_the_likelihood_term_counts_every_pair_alike(fit, text_request, tiny_llama, tokenizer):
    """At the start the contrast is ln 2, and the rest is the mean over pairs of the mean over each chosen side's tokens."""
    request = text_request("one", {"dpo": Dpo(nll_coef=0.5).model_dump()})
    nll = [-total / count for (total, count), _ in sums_of(tiny_llama().eval(), request, tokenizer)]
    (step,) = fit(request)
    assert step["nll"] == pytest.approx(sum(nll) / 3, rel=1e-4)
    assert step["loss"] == pytest.approx(math.log(2) + 0.5 * sum(nll) / 3, rel=1e-4)


def test_a_weight_scales_its_pair(fit, text_request):
    (step,) = fit(text_request("one", {"dpo": Dpo(nll_coef=0).model_dump()}, weight=0.5))
    assert step["loss"] == pytest.approx(math.log(2) / 2, rel=1e-5)


@pytest.mark.parametrize("kept", [True, False], ids=["champion", "base"])
def test_a_later_round_compares_with_the_nights_start(fit, text_request, tiny_llama, tokenizer, tmp_path, kept):
    """Not with the policy that its own training starts from."""
    model = attach_trainable(tiny_llama(), Lora(rank=4, alpha=8, dropout=0.0))
    torch.manual_seed(1)
    stir(model)
    save_adapter(model, tmp_path / "start", "ab12")
    reference = Reference(base=str(tmp_path / "base"), adapter=str(tmp_path / "start") if kept else None, version="v")
    request = text_request("one", {"dpo": Dpo(nll_coef=0).model_dump()}, reference=reference)
    of_start = sums_of((model if kept else tiny_llama()).eval(), request, tokenizer)
    stir(model)  # the rounds since
    save_adapter(model, tmp_path / "later", "ab12")
    of_policy = sums_of(model.eval(), request, tokenizer)
    (step,) = fit(request.model_copy(update={"init_adapter": str(tmp_path / "later")}))
    ratios = np.array(of_policy)[..., 0] - np.array(of_start)[..., 0]
    margins = 0.1 * (ratios[:, 0] - ratios[:, 1])
    assert step["loss"] == pytest.approx(np.log1p(np.exp(-margins)).mean(), abs=1e-4)
    assert abs(margins).min() > 1e-3


def stir(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)


def test_an_update_is_that_of_the_same_recorded_pairs(here, text_request, tiny_llama, tokenizer, tmp_path):
    """Recorded are the ids as they are rendered, and the reference's log-probs as another library computes them."""
    request = text_request("text", {"optimizer_steps": 2, "epochs": 2})
    opening, model = request.rendering.opening, tiny_llama().eval()
    rows, _ = load_text_pairs(request.samples, renderers(tokenizer, "pythonic", opening.specs()), opening.messages())
    files = record(rows, model, tmp_path)
    recorded = request.model_copy(
        update={"samples": files[:1], "token_scores": files[1:], "rendering": None, "output": str(tmp_path / "recorded/outcome")}
    )
    (tmp_path / "recorded").mkdir()
    found, expected = (json.loads((here(one) / "metrics.jsonl").read_text().splitlines()[-1]) for one in (request, recorded))
    for name in ("loss", "grad_norm", "margin", "nll"):
        assert found[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-6)


def record(rows, model, place):
    pairs, scores = [], []
    for number, (chosen, rejected) in enumerate(sides_of(rows)):
        prompt = int(min(chosen.trained[0], rejected.trained[0]))
        row = {
            "pair_id": f"p{number}",
            "item_id": "i",
            "group_id": "g",
            "strategy": "imported",
            "chosen_id": "a",
            "rejected_id": "b",
        }
        row |= {"prompt_tokens": prompt, "temperature": 1.0, "weight": 1.0, "tokens": "recorded", "prompt": []}
        for side, name in ((chosen, "chosen"), (rejected, "rejected")):
            mask = np.isin(np.arange(len(side.token_ids)), side.trained)
            row |= {name: [], f"{name}_token_ids": side.token_ids.tolist(), f"{name}_loss_mask": mask.tolist()}
            scores.append({"row_id": f"p{number}/{name}", "reference": logprobs(model, side)})
        pairs.append(row)
    files = [place / "recorded_pairs.parquet", place / "scores.parquet"]
    for file, table, name in zip(files, (pairs, scores), ("preference_pairs", "token_scores"), strict=True):
        write_parquet(pa.Table.from_pylist(table, schema_of(name)), file)
    return [str(file) for file in files]


def logprobs(model, row):
    ids = torch.tensor(row.token_ids)[None]
    with torch.no_grad():
        table = torch.log_softmax(model(input_ids=ids).logits[0], -1)
    return table[torch.tensor(row.trained) - 1, ids[0, row.trained]].tolist()


def test_a_request_for_text_pairs_leaves_an_ordinary_outcome(here, text_request):
    """The same request gives the same bytes. Its two pairs have one prompt, and each is a step of an epoch."""
    pairs = (pair(), pair("Pans?", "12", "x"), (*pair()[:2], ()))
    outcomes = [here(text_request(name, {"optimizer_steps": 2, "epochs": 2}, pairs)) for name in ("one", "two")]
    assert sorted(path.name for path in outcomes[0].iterdir()) == sorted(path.name for path in outcomes[1].iterdir())
    summary = json.loads((outcomes[0] / "summary.json").read_text())
    assert (summary["samples"], summary["filtered"]) == (2, {"no_assistant_turn_after_the_prompt": 1})
    assert len((outcomes[0] / "metrics.jsonl").read_text().splitlines()) == summary["steps"] == 4
    one, two = ({file.name: file.read_bytes() for file in (outcome / "adapter").iterdir()} for outcome in outcomes)
    assert one == two


def test_a_training_that_was_cut_goes_on_to_the_same_bytes(here, cut, text_request):
    """From its last checkpoint; the reference is still the policy at the start."""
    settings = {"optimizer_steps": 4, "epochs": 2}
    whole, request, seen = here(text_request("whole", settings)), text_request("cut", settings), []
    *_, newest = sorted((cut(request) / "checkpoints").iterdir(), key=lambda path: int(path.name.rpartition("-")[2]))
    shutil.rmtree(newest)
    again = here(request, seen.append)
    assert len(seen) == 1  # the steps before were kept
    assert (again / ADAPTER).read_bytes() == (whole / ADAPTER).read_bytes()


def test_text_pairs_without_an_environment_are_refused(request_for, here, stored):
    with pytest.raises(ConfigError, match="preamble and tools"):
        here(request_for("one", {"method": "dpo"}, samples=stored(pair())))
