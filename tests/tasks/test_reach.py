"""A step's key knows the code that the step runs; and a step needs nothing that was opened before it."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config import NightConfig, load_config
from clawpipe.core.services.stack import project_directory
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.core.store.source import import_closure, reached_modules
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest as ingest_files
from clawpipe.model.policy.base import resolve_base
from clawpipe.play.environments.discovery import source_digest
from clawpipe.record.nights.files import run_dir
from clawpipe.record.nights.journal import Journal, NullWatcher
from clawpipe.record.nights.record import create_record
from clawpipe.record.nights.status import NightStatus, entry
from flows.datasets import named_datasets
from flows.nightly import the_night
from flows.opening import dry_run_night
from tasks import choice, data, distillation, evaluation, export, ingest, items, model, recorded, registry, rollouts, training
from tasks.step import Call, Step, run_by
from tests.judging.fake_judge import fake_judge, verdict

MODULES = (choice, data, distillation, evaluation, export, ingest, items, model, recorded, registry, rollouts, training)
STEPS = {name: found for module in MODULES for name, found in vars(module).items() if isinstance(found, Step)}
TINY = project_directory() / "configs" / "tiny.yaml"
FEW = ("rollouts.items=4", "rollouts.chunks=1", "train.optimizer_steps=1", "environment.heldout_items=8", "gate.min_items=1")
EVERY_STEP = (
    *(*FEW, "rounds=2", "environment.benchmark_items=8"),
    *("train.loss.kl_coef=0.1", "train.probe_steps=1", "serving.artifact=merged"),
    *("curation.near.duplicates=true", "curation.near.heldout=true"),
    *("curation.demonstrations.share=0.5", "curation.slice_weights.long=2"),
)
DRAWN = (*FEW, "rounds=1", "rollouts.difficulty.unseen=0.5")  # such a night chooses no round

STORED = ("rollouts=null", "rounds=1", "environment.name=conversations", "evaluation.heldout_share=0.4", "train.optimizer_steps=1")
OF_CONVERSATIONS = {"hold_out", "fit_vocabulary", "render", "draw_conversations", "score_conversations", "replay_calls", "compress"}
OF_PAIRS = {"hold_out", "draw_pairs", "add_stored_pairs", "score_pairs"}
COMPARED = {"answer_turns", "prefer"}


class Watched:
    """Calls the steps as plain functions, one after another, and sees which first-party modules have code run meanwhile."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.ran: dict[str, set[str]] = {}

    def run(self, call: Call) -> StepResult:
        with _profile() as modules:
            result = call.function(**call.arguments)
        self.ran.setdefault(call.task.name, set()).update(modules)
        self._journal.finish(entry(call.name, False, 0.0, call.key, result))
        return result

    def run_together(self, calls: Sequence[Call]) -> list[StepResult]:
        return [self.run(call) for call in calls]


@contextmanager
def _profile() -> Iterator[set[str]]:
    """Names of the modules whose functions are called in the block, in any thread."""
    names: set[str] = set()

    def note(frame: Any, event: str, argument: Any) -> None:
        names.add(frame.f_globals.get("__name__", ""))

    sys.setprofile(note)
    threading.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]
        names &= {name for name in names if name.startswith(("clawpipe.", "data_contracts"))}


@pytest.mark.slow
@pytest.mark.usefixtures("quick_children")
def test_every_module_that_a_step_runs_is_in_its_key(home: Home):
    ran: set[str] = set()
    for settings in (EVERY_STEP, DRAWN):
        watched = watch(home, load_config(TINY, settings))
        assert unknown(watched, "letters") == {}
        ran |= set(watched.ran)
    rest = {
        "log_rollouts",
        "validate_scores",
        "compare_judges",
        "clear_hints",
        "probe_teacher",
        "ingest_paths",
        "promote",
        "register",
        "edit",
    }
    of_stored = {"recompute_logprobs", "check_recorded"} | OF_CONVERSATIONS | OF_PAIRS | COMPARED
    assert set(STEPS) - ran <= rest | of_stored


@pytest.fixture
def judge_url() -> Iterator[str]:
    with fake_judge(lambda system, document: verdict(system, 1)) as judge:
        yield judge.url


@pytest.mark.slow
@pytest.mark.usefixtures("quick_children")
def test_so_is_every_module_of_a_night_on_stored_data(home: Home, tmp_path: Path, judge_url: str):
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "1", "tool_call_id": "c"}]
    said.append({"role": "assistant", "content": "Yes."})
    asked = [[{"role": "user", "content": f"Question {number}?"}] for number in range(12)]
    lines: dict[str, list[JsonObject]] = {
        "chats": [{"messages": [*question, *said], "session_id": f"s{n}"} for n, question in enumerate(asked)],
        "pairs": [{"prompt": question[0]["content"], "chosen": "Yes.", "rejected": "No."} for question in asked],
    }
    for name, rows in lines.items():
        (tmp_path / name).with_suffix(".jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    ingest_files(home, [str(tmp_path)], Options())
    of_chats = ("trajectories=[all]", "train.method=sft", "curation.imitate=any")
    of_calls = (*of_chats, "evaluation.replay_calls=true")
    judge = f"evaluation.judge={{name: prm, options: {{url: '{judge_url}', model: m, votes: 1}}}}"
    nights = (
        ((*of_chats, "curation.compress={}"), OF_CONVERSATIONS - {"replay_calls"}),
        (of_calls, {"replay_calls"}),
        ((*of_chats, judge), COMPARED),
        (("preferences=[all]", "train.method=dpo"), OF_PAIRS),
    )
    for settings, steps in nights:
        watched = watch(home, load_config(TINY, (*STORED, *settings)))
        assert unknown(watched, "conversations") == {}
        assert steps <= set(watched.ran)


def watch(home: Home, config: NightConfig) -> Watched:
    """Run a night in this process, each step watched."""
    resolve_base("random")
    record = create_record(home, config, None, named_datasets(home, config))
    watched = Watched(Journal(NightStatus(night=record.night, run_dir=str(run_dir(home, record.night))), NullWatcher()))
    with run_by(watched):
        the_night(dry_run_night(config))
    return watched


def unknown(watched: Watched, environment: str) -> dict[str, set[str]]:
    """The modules that ran in a step and are not in its key, nor in the environment's or the judge's, which the key has by name."""
    named = import_closure(f"clawpipe.play.environments.{environment}") | import_closure("clawpipe.play.judging.prm")
    found = {name: modules - reached_modules(STEPS[name].function) - named for name, modules in watched.ran.items()}
    return {name: modules for name, modules in found.items() if modules}


@pytest.mark.parametrize(
    "name", ["generate_chunk", "evaluate", "probe_teacher", "recompute_logprobs", "check_recorded", "export", "register"]
)
def test_a_step_with_workers_counts_what_they_run(name: str):
    assert {"clawpipe.play.workers.worker", "clawpipe.model.engines.embedded"} <= reached_modules(STEPS[name].function)


def test_training_and_annotation_count_their_child_processes():
    assert {"clawpipe.learn.training.__main__", "clawpipe.learn.training.losses.policy"} <= reached_modules(STEPS["train"].function)
    assert "clawpipe.learn.annotation.child" in reached_modules(STEPS["annotate"].function)


def test_the_gate_counts_its_evidence():
    assert {"clawpipe.learn.evaluation.verdict.evidence", "clawpipe.learn.evaluation.verdict.gate"} <= reached_modules(
        STEPS["gate"].function
    )


def test_what_decides_nothing_is_in_no_key_of_what_comes_before():
    assert not {
        "clawpipe.learn.evaluation.verdict.gate",
        "clawpipe.record.nights.record",
        "clawpipe.record.nights.status",
        "clawpipe.record.reporting.html",
    } & reached_modules(STEPS["train"].function)


WORKERS = "contracts engines environments policy wire workers"
ROOMS_OF = {  # the rooms that decide the steps' results, besides config, store, and what lies in clawpipe itself
    "validate validate_scores": "contracts",
    "make_items make_benchmark draw_heldout hold_out": "contracts environments evaluation",
    "draw_conversations": "contracts environments evaluation similarity wire",
    "draw_pairs": "contracts environments evaluation policy similarity wire",
    "fit_vocabulary": "contracts policy recorded",
    "render": "contracts environments policy recorded wire",
    "compress": "contracts engines environments importers policy recorded wire",
    "recompute_logprobs check_recorded": f"{WORKERS} recorded",
    "check_model": f"{WORKERS} children evaluation rollouts training",
    "generate_chunk": f"{WORKERS} rollouts",
    "collect_rollouts": "contracts",
    "draw_items": "contracts rollouts",
    "demonstrate": f"{WORKERS} rollouts",
    "require_slices": "contracts environments evaluation",
    "compare_rounds": "contracts evaluation judging rollouts wire",
    "choose_round": "contracts evaluation rollouts",
    "score": "contracts environments judging wire",
    "compare_judges": "judging",
    "clear_hints": "contracts judging",
    "sign": "similarity",
    "find_duplicates find_heldout": "curation similarity",
    "curate add_stored_pairs": "contracts curation",
    "edit": "contracts curation judging reviews wire",
    "annotate": "annotation children contracts environments policy training wire",
    "train": "children contracts environments planning policy training wire",
    "evaluate probe probe_teacher": f"{WORKERS} evaluation rollouts",
    "replay_calls answer_turns": f"{WORKERS} evaluation",
    "score_conversations score_pairs": f"{WORKERS} evaluation recorded",
    "prefer": "contracts evaluation judging wire",
    "export measure_fidelity": f"{WORKERS} evaluation export",
    "gate": "evaluation",
    "register": f"{WORKERS} evaluation ledger registry",
    "promote": "environments evaluation ledger policy registry",
}
ROOMS = {step: set(rooms.split()) for steps, rooms in ROOMS_OF.items() for step in steps.split()}
ANOTHERS = {  # modules of these rooms, and packages with all that is in them, that decide nothing in a step
    "add_stored_pairs": {"curation.runner", "curation.steps"},
    "annotate": {"training.__main__", "training.run", "training.trainers", "training.checkpoint", "training.losses"},
    "curate": {"contracts.validate", "curation.stored_pairs"},
    "export": {"export.files"},
    "choose_round": {"evaluation.gate"},
    "gate": {"evaluation.heldout", "evaluation.heldout.answers", "evaluation.heldout.likelihood"},
    "measure_fidelity": {"export.files"},
    "prefer": {"evaluation.heldout.answers", "evaluation.heldout.likelihood", "evaluation.heldout.turns"},
    "score": {"judging.functions", "judging.prm", "judging.reward_model", "judging.rewards", "judging.rules"},
}
# A key knows them by the settings that name them.
SERVERS = {f"engines.{name}" for name in ("chat", "balance", "servers", "lora_servers", "vllm", "sglang")}
EVERY_SETTING = {"config.night"}  # which the trainer's estimate of memory reads


def test_every_cached_step_says_which_rooms_decide_it():
    assert set(ROOMS) == {name for name, step in STEPS.items() if step.cached}


@pytest.mark.parametrize("name", ROOMS)
def test_what_decides_nothing_in_a_step_is_not_in_its_key(name: str):
    """An edit of a loss once made every rollout of a night run again."""
    reached = [module.split(".", 2) for module in reached_modules(STEPS[name].function)]
    modules = {parts[2] for parts in reached if len(parts) == 3}  # without their storeys
    rooms = {room for module in modules if (room := module.partition(".")[0]) != module}
    servers = SERVERS if name != "compress" else set()  # it asks one endpoint, whatever its settings name
    needless = ANOTHERS.get(name, set()) | servers | (EVERY_SETTING if name != "train" else set())
    assert rooms - {"config", "store", "basics", "conversation", "user_code", "system"} == ROOMS[name]
    assert {module for module in modules if any(f"{module}.".startswith(f"{one}.") for one in needless)} == set()


@pytest.mark.parametrize("name", ["score", "evaluate", "generate_chunk"])
def test_an_edited_verifier_is_another_key_wherever_it_judges(name: str, tmp_path: Path, home: Home):
    """`score` once came back cached with the verdicts of an older verifier, beside an evaluation by the new one."""
    file, rules = tmp_path / "env.py", tmp_path / "rules.py"
    file.write_text("import rules\nclass Mine: ...\n")
    rules.write_text("wanted = 'abc'\n")
    before = _key(name, file)
    assert _key(name, file) == before
    rules.write_text("wanted = 'abcdefghijklmnopqrstuvwxyz'\n")
    assert _key(name, file) != before
    assert source_digest("letters") != source_digest("shop")


@pytest.mark.parametrize("name", ["score", "evaluate", "generate_chunk"])
def test_a_key_holds_the_packages_of_another_python(name, tmp_path):
    """Wherever it lies; another version of one of them, and the step runs again."""
    file = tmp_path / "mine.py"
    file.write_text("class Mine: name, kind = 'mine', 'chat'\n")
    one, same, newer = (_python(tmp_path / folder, version) for folder, version in (("a", "1.0"), ("b", "1.0"), ("c", "1.1")))
    keys = [_key(name, file, python) for python in (None, one, same, newer)]
    assert keys[1] == keys[2]
    assert len(set(keys)) == 3
    several = [_key(name, file, python, {"name": "letters"}) for python in (one, same, newer)]
    assert several[0] == several[1] != several[2]


def _python(folder: Path, version: str) -> str:
    """Write a program that answers as a Python with one package does."""
    folder.mkdir()
    program = folder / "python"
    program.write_text(f'#!/bin/sh\necho \'[[3, 11, 2], [["numpy", "{version}"]]]\'\n')
    program.chmod(0o755)
    return str(program)


def _key(name: str, file: Path, python: str | None = None, other: dict[str, str] | None = None) -> str | None:
    from clawpipe.core.config.environment import Environments
    from clawpipe.core.config.night import EnvironmentSpec, Generation, Runtime
    from clawpipe.model.policy.version import base_ref
    from clawpipe.play.rollouts.generate import Chunk

    rows, policy = DatasetRef(name="rows", digest="d", rows=1), base_ref("random", "b", "pythonic", "float32")
    own_spec = {"name": f"{file}:Mine", "python": python}
    environment = Environments.model_validate({"parts": [own_spec, other]}) if other else EnvironmentSpec.model_validate(own_spec)
    common = {"items": rows, "environment": environment}
    engine = {"policy": policy, "config": Generation(), "seed": 0, "runtime": Runtime()}
    own = {
        "score": {"trajectories": rows},
        "evaluate": engine,
        "generate_chunk": engine | {"chunk": Chunk(ordinals=(0,), together=(0,))},
    }
    return STEPS[name].call(**common, **own[name]).key


@pytest.mark.parametrize("name", ["train", "score", "generate_chunk"])
def test_an_edited_loss_scorer_or_engine_is_another_key(name: str, tmp_path: Path):
    """As an edited environment is; what does not use it keeps its key."""
    from clawpipe.core.config.night import EngineSpec, EnvironmentSpec, Generation, Runtime, ScorerSpec
    from clawpipe.core.config.training import Loss, Train
    from clawpipe.model.policy.version import base_ref
    from clawpipe.play.rollouts.generate import Chunk

    file = tmp_path / "own.py"
    rows, policy = DatasetRef(name="rows", digest="d", rows=1), base_ref("random", "b", "pythonic", "float32")
    common = {"policy": policy, "seed": 0, "runtime": Runtime(), "chunk": Chunk(ordinals=(0,), together=(0,))}
    train = {"start": policy, "token_scores": None, "temperature": 1.0, "seed": 0, "runtime": Runtime()}
    environment = {"items": rows, "environment": EnvironmentSpec(name="letters")}
    arguments: dict[str, dict[str, Any]] = {
        "train": {"samples": rows, "config": Train(loss=Loss(objective=f"{file}:own")), **train},
        "score": {"trajectories": rows, "scorers": (ScorerSpec(name=f"{file}:own"),), **environment},
        "generate_chunk": {"config": Generation(engine=EngineSpec(name=f"{file}:own")), **environment, **common},
    }

    keys = []
    for text in ("one = 1\n", "one = 1\n", "one = 2\n"):
        file.write_text(text)
        keys.append(STEPS[name].call(**arguments[name]).key)
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    ("name", "file"), [("vllm", "vllm.py"), ("sglang", "sglang.py"), ("sglang", "lora_servers.py"), ("openai", "chat.py")]
)
def test_an_edited_server_engine_is_another_key_where_it_samples(name: str, file: str, monkeypatch: pytest.MonkeyPatch):
    """No step reaches it but through its settings."""
    from clawpipe.core.config.night import EngineSpec, EnvironmentSpec, Generation, Runtime
    from clawpipe.core.store import source
    from clawpipe.model import engines
    from clawpipe.model.policy.version import base_ref
    from clawpipe.play.rollouts.generate import Chunk

    items, policy = DatasetRef(name="rows", digest="d", rows=1), base_ref("random", "b", "pythonic", "float32")
    config = Generation(engine=EngineSpec(name=name, url=("http://127.0.0.1:1",), model="m"))
    rest = {"environment": EnvironmentSpec(name="letters"), "chunk": Chunk(ordinals=(0,), together=(0,)), "seed": 0}
    call = STEPS["generate_chunk"].call(items=items, policy=policy, config=config, runtime=Runtime(), **rest)
    edited, digest, before = Path(engines.__path__[0]) / file, source.sha256_once, call.key
    monkeypatch.setattr(source, "sha256_once", lambda path: "edited" if path == edited else digest(path))
    assert call.key != before


@pytest.mark.parametrize("options", ['{"model": "MODEL"}', f'{{"jury": [{{"model": "{"long " * 100}"}}, {{"model": "MODEL"}}]}}'])
def test_other_weights_in_the_same_folder_are_another_key(tmp_path: Path, options: str):
    """A reward model was known by its path: another checkpoint there would have been the old one's scores."""
    from clawpipe.core.config.night import EnvironmentSpec, ScorerSpec

    rows = DatasetRef(name="rows", digest="d", rows=1)
    judge = ScorerSpec(name="prm", options=json.loads(options.replace("MODEL", str(tmp_path))))
    key = lambda: STEPS["score"].call(trajectories=rows, items=rows, environment=EnvironmentSpec(), scorers=(judge,)).key  # noqa: E731
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"one")
    before = key()
    assert key() == before
    weights.write_bytes(b"two")
    assert key() != before
