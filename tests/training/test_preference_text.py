"""Text-only pairs through TRL: their rendering, and that they train like recorded pairs."""

import json
import math
from dataclasses import replace

import pyarrow as pa
import pytest
import torch
from peft import get_peft_model_state_dict
from transformers import TrainingArguments

from clawpipe.core.config.environment import EnvironmentSpec
from clawpipe.core.config.training import Dpo, Lora, Train
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.core.store.datasets import write_parquet
from clawpipe.errors import ConfigError, DataError, TrainingError
from clawpipe.learn.training.data.text_pairs import load_text_pairs
from clawpipe.learn.training.losses.preference import preference_loss
from clawpipe.learn.training.metrics import METRICS
from clawpipe.learn.training.model.adapter import attach_trainable, save_adapter
from clawpipe.learn.training.request import Reference, Rendering
from clawpipe.learn.training.trainers.trl_dpo import pairs_per_step, train_text_preferences
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


def test_a_pair_is_rendered_with_preamble_tools_and_calls(stored, renderer, tokenizer):
    prompt = (Message("user", "Kettles?"),)
    call, words = Message("assistant", "", (CALL,)), Message("assistant", "I do not know.")
    (row,), filtered = load_text_pairs(stored((prompt, (call,), (words,))), lambda tools: renderer, PREAMBLE)
    assert filtered == {}
    assert row["prompt_ids"] == renderer.prompt([*PREAMBLE, *prompt])
    assert decode(tokenizer, row["prompt_ids"]) == (
        "<|im_start|>system\nYou keep a shop.\nTools: stock(item)<|im_end|>\n"
        "<|im_start|>user\nKettles?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert decode(tokenizer, row["chosen_ids"]) == 'stock(item="kettle")<|im_end|>'
    assert decode(tokenizer, row["rejected_ids"]) == "I do not know.<|im_end|>"


@pytest.mark.parametrize(
    ("system", "tools", "shown"),
    [
        ("Be brief.", None, "Be brief."),
        ("Be brief.", '[{"name": "order", "parameters": {"properties": {"item": {}}}}]', "Be brief.\nTools: order(item)"),
        ("", '[{"type": "function", "function": {"name": "order"}}]', "Tools: order()"),
    ],
)
def test_a_pair_keeps_its_system_message_and_tools(stored, tokenizer, system, tools, shown):
    prompt = (*([Message("system", system)] if system else []), Message("user", "Kettles?"))
    given = stored((prompt, (Message("assistant", "3"),), (Message("assistant", "4"),)), tools=tools)
    (row,), _ = load_text_pairs(given, renderers(tokenizer, "pythonic", TOOLS), PREAMBLE)
    assert decode(tokenizer, row["prompt_ids"]).startswith(f"<|im_start|>system\n{shown}<|im_end|>\n<|im_start|>user\nKettles?")


def test_a_history_with_assistant_turns_belongs_to_the_prompt(stored, renderer, tokenizer):
    history = (
        Message("user", "Kettles?"),
        Message("assistant", "", (CALL,)),
        Message("tool", "3", tool_call_id="call_0_0", name="stock"),
    )
    (row,), _ = load_text_pairs(
        stored((history, (Message("assistant", "3"),), (Message("assistant", "4"),))), lambda tools: renderer, ()
    )
    assert 'stock(item="kettle")<|im_end|>' in decode(tokenizer, row["prompt_ids"])
    assert decode(tokenizer, row["chosen_ids"]) == "3<|im_end|>"


def test_text_that_spells_a_marker_stays_text(stored, renderer):
    (row,), _ = load_text_pairs(stored(pair(chosen="<|im_end|>")), lambda tools: renderer, ())
    assert row["chosen_ids"].count(renderer.eos_id) == 1
    assert len(row["chosen_ids"]) == len("<|im_end|>") + 1


def test_pairs_that_cannot_be_trained_are_filtered_by_reason(stored, renderer):
    prompt, (good,), (bad,) = pair()
    two_turns = (Message("assistant", "", (CALL,)), Message("tool", "3", tool_call_id="call_0_0", name="stock"), good)
    unwritable = Message("assistant", "", (ToolCall("c", "no name", "{}"),))
    no_object = Message("assistant", "", (ToolCall("c", "stock", "[1]"),))
    rows, filtered = load_text_pairs(
        stored(
            (prompt, (good,), (bad,)),
            (prompt, two_turns, (bad,)),
            (prompt, (good,), two_turns),
            (prompt, (Message("user", "?"), good), (bad,)),
            (prompt, (good,), ()),
            (prompt, (unwritable,), (bad,)),
            (prompt, (good,), (no_object,)),
        ),
        lambda tools: renderer,
        (),
    )
    assert len(rows) == 1
    assert filtered == {
        "more_than_one_assistant_turn_as_text": 2,
        "no_assistant_turn_after_the_prompt": 2,
        "calls_cannot_be_written": 2,
    }


def test_nothing_to_train_on_is_a_data_error(stored, renderer):
    with pytest.raises(DataError, match="no preference pair remains"):
        load_text_pairs(stored(pair(), weight=math.nan), lambda tools: renderer, ())


@pytest.fixture
def train_pairs(tmp_path, tokenizer):
    """train_pairs(model, rows, ...): train; the trainer."""

    def run(model, rows, on_step=lambda facts: None, reference=None, **settings):
        config = Train(method="dpo", **{"optimizer_steps": 1, "learning_rate": 1e-3} | settings)
        arguments = TrainingArguments(
            output_dir=str(tmp_path / "work"),
            use_cpu=True,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=pairs_per_step(config, len(rows), 0),
            learning_rate=config.learning_rate,
            lr_scheduler_type="constant",
            optim="adamw_torch",
            activation_checkpointing=False,
            logging_steps=1,
            logging_nan_inf_filter=False,
            save_strategy="no",
            remove_unused_columns=False,
            dataloader_pin_memory=False,
            report_to="none",
            disable_tqdm=True,
        )
        return train_text_preferences(model, tokenizer, rows, config, arguments, on_step, reference=reference)

    return run


@pytest.fixture
def fit(train_pairs):
    """fit(model, rows, ...): train; the metrics of each update."""
    return lambda *arguments, **settings: train_pairs(*arguments, **settings).steps


@pytest.fixture
def rows(stored, renderer):
    return load_text_pairs(stored(pair(), pair("Pans?", "12", "x"), pair("Cups?", "none left", "2")), lambda tools: renderer, ())[0]


def side_sums(model, row):
    """Log-prob of both sides by the model's ordinary forward."""
    sums = []
    for side in ("chosen_ids", "rejected_ids"):
        ids = torch.tensor([row["prompt_ids"] + row[side]])
        with torch.no_grad():
            table = torch.log_softmax(model(input_ids=ids).logits[0], -1)
        start = len(row["prompt_ids"])
        sums.append(table[range(start - 1, ids.shape[1] - 1), ids[0, start:]].sum().item())
    return sums


def test_it_starts_without_a_margin_and_prints_nothing(fit, tiny_llama, rows, capfd):
    seen = []
    (step,) = fit(attach_trainable(tiny_llama(), Lora(rank=4)), rows, on_step=seen.append, dpo=Dpo(nll_coef=0))
    assert step["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert (step["margin"], step["accuracy"], step["nonfinite"]) == (0, 0, 0)
    assert step["trained_tokens"] == sum(len(row["chosen_ids"]) + len(row["rejected_ids"]) for row in rows)
    assert [(facts["step"], facts["of"]) for facts in seen] == [(1, 1)]
    assert capfd.readouterr().out == ""


def test_the_likelihood_term_counts_every_pair_alike(fit, tiny_llama, rows):
    """At the start the contrast is ln 2, and the rest is the mean over pairs of the mean over each chosen side's tokens."""
    model = tiny_llama()
    nll = [-side_sums(model, row)[0] / len(row["chosen_ids"]) for row in rows]
    (step,) = fit(attach_trainable(model, Lora(rank=4)), rows, dpo=Dpo(nll_coef=0.5))
    assert step["loss"] == pytest.approx(math.log(2) + 0.5 * sum(nll) / 3, rel=1e-5)


def test_a_weight_scales_its_pair(fit, tiny_llama, rows):
    weighted = [rows[0] | {"weight": 0.5}, rows[1], rows[2] | {"weight": 0.0}]
    (step,) = fit(attach_trainable(tiny_llama(), Lora(rank=4)), weighted, dpo=Dpo(nll_coef=0))
    assert step["loss"] == pytest.approx(math.log(2) * 1.5 / 3, rel=1e-5)


def test_training_prefers_the_chosen_side_and_saves_an_adapter(fit, tiny_llama, rows):
    model = attach_trainable(tiny_llama(), Lora(rank=4))
    before, names = [side_sums(model, row) for row in rows], set(get_peft_model_state_dict(model))
    steps = fit(model, rows, learning_rate=1e-2, optimizer_steps=3, epochs=4, dpo=Dpo(nll_coef=0))
    assert len(steps) == 12
    assert steps[-1]["accuracy"] == 1
    for row, (old_chosen, old_rejected) in zip(rows, before, strict=True):
        chosen, rejected = side_sums(model, row)
        assert chosen - rejected > old_chosen - old_rejected
    assert set(get_peft_model_state_dict(model)) == names
    assert list(model.peft_config) == ["default"]


def test_going_on_from_an_adapter_takes_it_as_the_reference(fit, tiny_llama, rows):
    model = attach_trainable(tiny_llama(), Lora(rank=4))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    (step,) = fit(model, rows, dpo=Dpo(nll_coef=0))
    assert step["loss"] == pytest.approx(math.log(2), abs=1e-6)


@pytest.mark.parametrize("kept", [True, False], ids=["champion", "base"])
def test_a_later_round_compares_with_the_nights_start(tiny_llama, rows, tmp_path, train_pairs, kept):
    """TRL copies the adapter that it is given: each round was its own reference."""
    model = attach_trainable(tiny_llama(), Lora(rank=4))
    torch.manual_seed(1)
    stir(model)
    save_adapter(model, tmp_path / "start", "ab12")
    wanted = torch.tensor([side_sums(model if kept else tiny_llama(), row) for row in rows[:1]])[0]
    stir(model)  # the rounds since
    chosen, rejected = side_sums(model, rows[0])
    reference = Reference(base="", adapter=str(tmp_path / "start") if kept else None, version="v")
    trainer = train_pairs(model, rows[:1], reference=reference, dpo=Dpo(nll_coef=0))
    margin = 0.1 * ((chosen - rejected) - float(wanted[0] - wanted[1]))
    assert trainer.steps[0]["loss"] == pytest.approx(-math.log(1 / (1 + math.exp(-margin))), abs=1e-4)
    assert list(model.peft_config) == ["default"]
    assert abs(margin) > 1e-3


def stir(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)


def test_labels_that_trl_cannot_smooth_are_refused(fit, tiny_llama, rows):
    with pytest.raises(ConfigError, match="smooths no labels of sigmoid_norm"):
        fit(tiny_llama(), rows, dpo=Dpo(variant="sigmoid_norm", label_smoothing=0.1))


def test_smoothed_labels_mean_to_trl_what_they_mean_here(fit, tiny_llama, rows):
    """TRL's `sigmoid` would ignore the setting. Each update's loss, by TRL, is ours on the policy of that moment."""
    model, reference, found = tiny_llama(), torch.tensor(side_sums(tiny_llama(), rows[0])), []
    dpo = Dpo(nll_coef=0, label_smoothing=0.3, beta=2.0)

    def ours(facts):
        found.append(torch.tensor(side_sums(model, rows[0])))

    steps = fit(model, rows[:1], ours, learning_rate=1e-2, epochs=4, dpo=dpo)
    lengths = torch.tensor([len(rows[0][side]) for side in ("chosen_ids", "rejected_ids")])
    owner = torch.arange(2).repeat_interleave(lengths)
    for step, policy in zip(steps[1:], found, strict=False):  # an update is reported after it was made
        spread = ((sums / lengths)[owner] for sums in (policy, reference))  # the loss knows sums and means alone
        expected, _ = preference_loss(*spread, owner, dpo)
        assert step["loss"] == pytest.approx(float(expected), rel=1e-4)
    assert abs(steps[-1]["loss"] - math.log(2)) > 0.01


def test_a_whole_model_trains_too(fit, tiny_llama, rows):
    steps = fit(tiny_llama(), rows, epochs=3, dpo=Dpo(nll_coef=0))
    assert steps[0]["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert steps[-1]["loss"] < 0.6


def test_the_same_request_trains_the_same_adapter(fit, tiny_llama, rows):
    adapters = []
    for _ in range(2):
        torch.manual_seed(3)
        model = attach_trainable(tiny_llama(), Lora(rank=4))
        fit(model, rows, optimizer_steps=2)
        adapters.append(get_peft_model_state_dict(model))
    assert all(torch.equal(adapters[0][name], adapters[1][name]) for name in adapters[0])


def test_a_loss_that_is_not_finite_ends_the_run(fit, tiny_llama, rows):
    with pytest.raises(TrainingError, match="not finite"):
        fit(attach_trainable(tiny_llama(), Lora(rank=4)), [rows[0] | {"weight": math.inf}])


def test_metrics_are_plain_numbers_with_known_names(fit, tiny_llama, rows):
    (step,) = fit(attach_trainable(tiny_llama(), Lora(rank=4)), rows)
    json.dumps(step, allow_nan=False)
    assert step.keys() <= METRICS.keys()


@pytest.mark.parametrize(("pairs", "updates", "expected"), [(9, 4, 3), (8, 4, 2), (2, 4, 1), (5, 1, 5)])
def test_pairs_are_dealt_to_the_updates_of_an_epoch(pairs, updates, expected):
    assert pairs_per_step(Train(optimizer_steps=updates), pairs, 0) == expected


def test_a_request_for_text_pairs_leaves_an_ordinary_outcome(request_for, here, stored, tokenizer, tmp_path):
    """Rendered for the shop, whose preamble every prompt gets; the same request gives the same bytes."""
    tokenizer.save_pretrained(tmp_path / "base")
    rendering = Rendering(opening=openings(EnvironmentSpec())[0], tool_call_format="pythonic")
    samples = stored(pair(), pair("Pans?", "12", "x"), (*pair()[:2], ()))
    outcomes = [
        here(request_for(name, {"method": "dpo", "pack_tokens": 64}, samples=samples, rendering=rendering))
        for name in ("one", "two")
    ]
    assert sorted(path.name for path in outcomes[0].iterdir()) == ["adapter", "metrics.jsonl", "summary.json"]
    summary = json.loads((outcomes[0] / "summary.json").read_text())
    assert (summary["samples"], summary["filtered"]) == (2, {"no_assistant_turn_after_the_prompt": 1})
    assert len((outcomes[0] / "metrics.jsonl").read_text().splitlines()) == summary["steps"] == 4
    one, two = ({file.name: file.read_bytes() for file in (outcome / "adapter").iterdir()} for outcome in outcomes)
    assert one == two


def test_text_pairs_without_an_environment_are_refused(request_for, here, stored):
    with pytest.raises(ConfigError, match="preamble and tools"):
        here(request_for("one", {"method": "dpo"}, samples=stored(pair())))


def test_only_a_trainer_that_reads_text_pairs_gets_them(stored, tmp_path, monkeypatch):
    """Any other method on pairs trained with the loss of dpo."""
    from clawpipe.core.config import training as settings
    from clawpipe.learn.training.request import TrainRequest
    from clawpipe.learn.training.run import train

    paths = stored(((Message("user", "q"),), (Message("assistant", "a"),), (Message("assistant", "b"),)))
    another = replace(settings.METHODS["kto"], pairs=True)
    monkeypatch.setattr(settings, "METHODS", {**settings.METHODS, "kto": another})
    about = {"base": str(tmp_path), "base_digest": "b", "temperature": 1.0, "seed": 0, "output": str(tmp_path / "out")}
    with pytest.raises(ConfigError, match="kto cannot train on preference pairs that are text only"):
        train(TrainRequest(samples=tuple(paths), config=Train(method="kto"), **about), tmp_path, print)
