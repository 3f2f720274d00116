"""Propose the settings of a night for what a user has: logs of an agent, preference pairs, or a file of prompts with answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.gate import Gate
from clawpipe.core.config.methods import METHODS
from clawpipe.core.config.night import CONVERSATIONS
from clawpipe.data.importers.read.labels import join_labels, read_labels
from clawpipe.data.importers.read.read import read_stream
from clawpipe.data.importers.read.reading import Reading
from clawpipe.data.importers.read.survey import Survey
from clawpipe.data.importers.record import Conversation
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.monoclaw import rl_settings
from clawpipe.errors import ClawpipeError, ConfigError, DataError
from clawpipe.learn.evaluation.heldout.heldout_share import few, heldout_share, too_few
from clawpipe.model.planning.architecture import architecture_of
from clawpipe.model.planning.hardware import local_device
from clawpipe.model.planning.plan import estimate
from clawpipe.play.environments.answers import is_number
from clawpipe.play.environments.checks import unusable
from clawpipe.play.environments.local_tools import is_tool_file
from clawpipe.play.environments.prompts import UNCHECKED, PromptLine, Prompts, PromptsEnvironment, read_prompts
from clawpipe.play.environments.tools import ToolsEnvironment
from clawpipe.play.judging.reactions.reader import reactions_to
from clawpipe.start.proposing.numbers import are_labels, least_imitated
from clawpipe.start.proposing.proposal import Proposal
from clawpipe.start.proposing.tool_call_format import proposed_format

_PLAIN = Options()
_HALF = 0.5
_FEW = 5000  # conversations that are imitated more than once


def propose(
    paths: Sequence[str],
    model: str,
    method: str | None,
    name: str,
    options: Options = _PLAIN,
    monoclaw: Path | None = None,
    server: str = "",
) -> Proposal:
    """Propose the settings of a night on these files with this model.

    Args:
        paths: a file of prompts, or files and folders that `clawpipe ingest` reads.
        method: one of METHODS; None: proposed.
        name: label of the night.
        options: of `clawpipe ingest`, for logs.
        monoclaw: a config of MonoClaw, whose `rl:` block decides what it names.
        server: command or URL of an MCP server whose tools the prompts are answered with; "": none.

    Raises:
        NotFoundError: no such file.
        DataError: nothing in the files can be learnt from.
        ConfigError: the method or the server does not fit the files.
    """
    if method is not None and method not in METHODS:
        raise ConfigError(f"no method {method!r}", "--method", f"one of {', '.join(METHODS)}")
    made = Proposal({"night": name, "rounds": 1})
    format_, reason = proposed_format(model)
    made.add("model", {"base": model, "tool_call_format": format_}, reason)
    if len(paths) == 1 and _holds_prompts(Path(paths[0])):
        _from_prompts(made, Path(paths[0]), method, server)
    elif server:
        raise ConfigError(
            "tools can be run for prompts, and these files hold none", "--mcp", "name one file of prompts with answers"
        )
    else:
        _from_logs(made, paths, method, options)
    for setting, value in (rl_settings(monoclaw) if monoclaw else {}).items():
        block, _, field_ = setting.partition(".")
        made.add(block, {field_: value}, f"{field_}: from `rl:` in {monoclaw}")
    _fit(made)
    return made


def _holds_prompts(file: Path) -> bool:
    """Whether the first line of a file is a prompt with its answer."""
    try:
        with file.open("rb") as lines:
            line = json.loads(next(text for text in lines if text.strip()))
        return "answer" in line and bool(PromptLine.model_validate(line))
    except (OSError, ValueError, TypeError, StopIteration):
        return False


def _from_prompts(made: Proposal, file: Path, method: str | None, server: str) -> None:
    check, why = _check(read_prompts(file, UNCHECKED).lines)
    read = read_prompts(file, check, runs_tools=bool(server))
    share = heldout_share(len(read.lines), least=0.3)
    environment = (
        ToolsEnvironment(str(file), server, check, share=share) if server else PromptsEnvironment(str(file), check, share=share)
    )
    train, held = (environment.distinct_items(side) for side in ("train", "heldout"))
    if not (train and held):
        raise DataError(f"too few prompts: {train} to train on and {held} held out", str(file), "add prompts that differ")
    made.found.append(f"{file}: {len(read.lines)} prompts with answers, {_rejected(read)}")
    place = str(Path(server).expanduser().resolve()) if is_tool_file(server) else server
    name, tools = ("tools", {"server": place}) if server else ("prompts", {})
    if held < Gate().min_items:
        made.found.append(few(train + held))
    options = {"file": str(file.resolve()), "check": check, "share": share, **tools}
    counts = {"train_items": min(128, train), "heldout_items": min(160, held), "benchmark_items": 0}
    made.add("environment", {"name": name, "options": options, **counts}, f"{why}; {held} prompts are never trained on")
    made.add("rollouts", {"items": min(32, train), "group_size": 8, "max_new_tokens": 64, "max_turns": 4 if server else 1})
    made.add("rounds", 3)
    chosen = method or "grpo"
    made.add("train", {"method": chosen}, f"{chosen}: the model tries each prompt several times and learns from what was right")


def _rejected(read: Prompts) -> str:
    """Return how many lines are no prompts, and why most of them are not."""
    reasons = [reason for reason, _ in Counter(read.rejected.values()).most_common(1)]
    return f"{len(read.rejected)} lines that are none{''.join(f' ({reason})' for reason in reasons)}."


def _check(lines: Sequence[PromptLine]) -> tuple[str, str]:
    """Return the check that most answers allow, and why."""
    kinds = Counter(_kind(line.answer) for line in lines if not line.check and line.answer is not None)
    kind = kinds.most_common(1)[0][0] if kinds else "normalized"
    words = {
        "numeric": "most answers are numbers: the last number of a reply counts",
        "tool_call": "most answers are calls of tools",
        "normalized": "most answers are texts: case, punctuation and articles do not count",
        "exact": "most answers are signs: a reply is one to the letter",
    }
    return kind, words[kind]


def _kind(answer: Any) -> str:
    if isinstance(answer, dict | list):
        return "tool_call"
    if is_number(str(answer)):
        return "numeric"
    return "exact" if unusable("normalized", answer) else "normalized"


def _from_logs(made: Proposal, paths: Sequence[str], method: str | None, options: Options) -> None:
    reading, survey = Reading(), Survey()
    labels = read_labels([str(options.labels)] if options.labels else [])
    reacted = 0
    for record in join_labels(read_stream(list(paths), options.format, reading, mapping=options.mapping), labels):
        survey.add(record)
        reacted += isinstance(record, Conversation) and any(reactions_to(record.messages))
    counts = survey.as_dict(reading)
    unsaid = [] if survey.counts["succeeded"] else survey.numbers
    talks, pairs = counts["conversations"], counts["preferences"]
    if not talks and not pairs:
        raise DataError("no conversation and no preference pair in it", ", ".join(paths), "`clawpipe inspect` says why")
    made.found.append(_sentence(counts))
    chosen, why = (method, "as asked for") if method else _method(counts, unsaid)
    kinds = {"preferences": ["new"]} if pairs and METHODS[chosen].pairs and not talks else {"trajectories": ["new"]}
    if counts["scored"] and talks:
        kinds["scores"] = ["new"]
    for setting, words in kinds.items():
        made.add(setting, words, "" if setting == "scores" else "what was ingested and no night has used yet")
    made.add("rollouts", None)
    made.add("environment", {"name": CONVERSATIONS}, "nothing to try: the verdict is about a held-out share of these data")
    _judged_by(made, counts, chosen)
    made.add("train", {"method": chosen, **_steps(chosen, talks or pairs)}, f"{chosen}: {why}")
    if "opd" in METHODS[chosen].blocks:
        made.add("train", {"opd": {"probe_items": 0}}, "without tasks the hinted teacher cannot be tried, so its hints are trusted")
    if reacted and not counts["scored"]:
        _read_reactions(made, chosen, reacted)
    elif chosen == "sft" and not counts["scored"]:
        made.add("curation", {"imitate": "any"}, "nobody has judged these conversations: all are imitated")
    elif chosen == "sft" and unsaid:
        _imitate_the_better_half(made, unsaid)


def _imitate_the_better_half(made: Proposal, numbers: Sequence[float]) -> None:
    """Let the scores say what is imitated, where none of them says what was a success."""
    least = least_imitated(numbers)
    why = f"no score says what was a success: what has {least:g} or more is imitated, about the better half; choose another bound"
    made.add("curation", {"imitate": "any", "filters": {"min_score": least}}, why)


def _read_reactions(made: Proposal, method: str, reacted: int) -> None:
    """Let users' own words say which turns were good."""
    made.add("scorers", ["rules"], f"rules: in {reacted} conversations users say what they think of an answer (docs/judges.md)")
    if method == "sft":
        made.add("curation", {"imitate": "any"}, "all turns are imitated but those that a user called wrong")
    elif METHODS[method].pairs:
        made.add("curation", {"pairs": {"corrections": True}}, "what a user called wrong is paired with the reply accepted later")
    elif not METHODS[method].judged and not METHODS[method].critic:
        why = "each turn has the credit of what the user said of it, less from users who praise, or blame, more than all do"
        made.add("curation", {"credit": "turn", "level_users": True}, why)


def _judged_by(made: Proposal, counts: JsonObject, method: str) -> None:
    """Set what is held out, and what is compared on it."""
    owners, talks = counts["owners"], counts["conversations"]
    share = heldout_share(owners)
    made.add("evaluation", {"heldout_share": share}, "of the users, sessions or prompts; never trained on")
    if remark := too_few(owners, share):
        made.found.append(remark)
    if METHODS[method].pairs and not talks:
        return
    if counts["calling"] >= _HALF * talks:
        made.add(
            "evaluation", {"replay_calls": True}, "replay_calls: the models make recorded tool calls anew, and equal calls count"
        )
        return
    wish = "likelihood shows imitation, not that tasks are done better: true promotes on it, false holds"
    made.add("gate", {"promote_on_likelihood": False}, wish)


def _steps(method: str, rows: int) -> JsonObject:
    """Return the settings of epochs and step size for a method on stored rows: few rows are seen three times, in small steps."""
    if method == "sft":
        return {"epochs": 3 if rows <= _FEW else 1, "batch_rows": 16}
    return {"batch_rows": 16} if METHODS[method].pairs else {}


def _method(counts: JsonObject, unsaid: Sequence[float]) -> tuple[str, str]:
    """Return the method for what logs hold, and why.

    Args:
        unsaid: the scores, where none of them says what was a success.
    """
    talks = counts["conversations"]
    if not talks:
        return "dpo", "the files hold preference pairs"
    with_logprobs = counts["with_logprobs"] >= _HALF * talks
    if with_logprobs and counts["hinted"] >= _HALF * talks:
        return "combine", "sampled tokens with hints: rewards and hindsight at once"
    if with_logprobs and counts["scored"] >= _HALF * talks:
        return "grpo", "sampled tokens with log-probs and scores: importance ratios can be taken"
    if are_labels(unsaid):
        return "kto", "scores above and below 0: their signs are the labels of good and bad conversations"
    scored = "the successes are imitated" if counts["scored"] and not unsaid else "it is imitated"
    held = "tokens without their log-probs" if counts["with_tokens"] else "text without the sampled tokens"
    return "sft", f"{held}: {scored}"


def _sentence(counts: JsonObject) -> str:
    formats = ", ".join(counts["formats"])
    sizes = f"{counts['conversations']} conversations of {counts['sessions']} sessions, {counts['preferences']} preference pairs"
    kinds = f"{counts['with_tokens']} with tokens, {counts['scored']} with scores, {counts['hinted']} with hints"
    return f"{sizes} ({formats}); {kinds}; {sum(counts['refused'].values())} lines rejected."


def _fit(made: Proposal) -> None:
    """Add the settings that make the night fit this machine, if it would not fit."""
    config = made.config()
    try:
        found = estimate(config, architecture_of(config.model.base), local_device("auto"))
    except ClawpipeError as error:
        made.found.append(f"Whether it fits this machine is not known: {error.what}.")
        return
    if found.changes is None:
        made.found.append(f"No settings make it fit {found.device.name}: `clawpipe plan --hardware` shows what it needs.")
        return
    for setting, value in found.changes.items():
        block, _, field_ = setting.partition(".")
        made.add(block, {field_: value}, f"{field_}: so that it fits {found.device.name}")
