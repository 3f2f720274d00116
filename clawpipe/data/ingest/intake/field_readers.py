"""Who reads each field that an importer or a capture keeps.

A fact that was read and that nobody uses is a fault that shows nowhere: answers that were cut off, and said so, were taught as
whole ones. So each field of the records, and each column of the datasets that ingest writes, names a reader here: a function as
`module:name`, a module, a file of SQL, or a page of the docs. A test fails for a field without one, and for a reader that is gone
or never mentions the field.
"""

from __future__ import annotations

_ROWS, _PAIRS, _CAPTURE = (
    "clawpipe.data.ingest.intake.rows",
    "clawpipe.data.ingest.intake.pairs",
    "clawpipe.data.importers.formats.captured_rows",
)
_OPENCLAW, _STATUS = "clawpipe.data.importers.formats.openclaw", "clawpipe.data.ingest.captured.captured_sessions:_turn_status"
_SQL, _OWNER = "clawpipe/data/curation/sql", "clawpipe.learn.evaluation.heldout.conversations:owner_of"
_CONTRACT = "data_contracts/preference_pairs/v2.odcs.yaml"  # its rules
_PEOPLE = "docs/gateway.md"  # for whoever looks into a segment: no clock decides the order of turns
_PAIR_OUT = "clawpipe.serve.export.datasets:_pair"

RECORDS: dict[str, dict[str, str]] = {
    "Conversation": {
        **dict.fromkeys(("messages", "session", "user", "model", "status", "tools", "extra"), f"{_ROWS}:trajectory_row"),
        **dict.fromkeys(("tool_calls", "tool_errors"), f"{_ROWS}:check"),
        **dict.fromkeys(("prompt", "group"), f"{_ROWS}:task_of"),
        "kinds": f"{_ROWS}:_recorded",
        "tokens": f"{_ROWS}:trajectory_row",
        "judgements": f"{_ROWS}:score_rows",
        "failed": f"{_ROWS}:marks",
        "origin": f"{_ROWS}:origin_of",
        "row": f"{_ROWS}:exported_row",
        "unread": "clawpipe.data.importers.untaught:silenced",
        "continued": "clawpipe.data.importers.untaught:_continued",
        "lines": "clawpipe.data.ingest.intake.prepare:_place",
        "context": "clawpipe.data.importers.record:Conversation",
        "trace": f"{_ROWS}:_extra",
        "wraps": "clawpipe.data.importers.read.wrapping:is_held",
    },
    "Preference": {
        **dict.fromkeys(("prompt", "chosen", "rejected"), f"{_PAIRS}:check_pair"),
        **dict.fromkeys(("margin", "tools", "extra", "session", "user"), f"{_PAIRS}:pair_row"),
        "origin": f"{_ROWS}:origin_of",
    },
    "Prompt": {
        **dict.fromkeys(("messages", "tools", "extra", "session", "user"), f"{_PAIRS}:item_row"),
        "origin": f"{_ROWS}:origin_of",
    },
    "Judgement": dict.fromkeys(("value", "origin", "success", "turn", "reason", "hints", "evidence"), f"{_ROWS}:score_row"),
    "Tokens": {
        **dict.fromkeys(("ids", "mask", "logprobs", "temperature", "kind"), f"{_ROWS}:_recorded"),
        "advantages": f"{_ROWS}:_extra",
        "policy_version": f"{_ROWS}:_policy",
    },
    "Origin": dict.fromkeys(("format", "file", "line"), f"{_ROWS}:origin_row"),
    "TurnRecord": {
        **dict.fromkeys(("session", "turn", "kind", "extra", "unknown", "unread", "tools"), f"{_OPENCLAW}:_conversation"),
        **dict.fromkeys(("history", "response"), f"{_OPENCLAW}:_continues"),
        "following": f"{_OPENCLAW}:_conversation",
    },
    "JudgeRecord": {
        **dict.fromkeys(("session", "turn"), f"{_OPENCLAW}:Sessions"),
        **dict.fromkeys(("judgement", "scored"), f"{_OPENCLAW}:merged"),
    },
    "Answer": {
        "message": "clawpipe.data.capture.untaught:fault_of",
        "finish_reason": f"{_CAPTURE}:_finish",
        **dict.fromkeys(("token_ids", "logprobs"), f"{_CAPTURE}:_sampled"),
    },
    "Turn": {
        **dict.fromkeys(("id", "time", "turn_type", "answers", "ending", "response_id", "model", "no_tokens"), _STATUS),
        **dict.fromkeys(
            ("turn_type_from", "api", "seconds", "model_version", "digest", "upstream", "usage", "policy_version"), _STATUS
        ),
        **dict.fromkeys(("key", "session", "done"), "clawpipe.data.capture.sessions:sessions_of"),
        "session_from": "clawpipe.data.capture.alarms:alarms",
        "parent": "clawpipe.data.capture.sessions:Session",
        **dict.fromkeys(("request", "user"), f"{_CAPTURE}:_row"),
        "prompt_token_ids": f"{_CAPTURE}:_sampled",
        **dict.fromkeys(("logprobs_kind", "temperature"), f"{_CAPTURE}:_tokens"),
    },
    "Feedback": {
        **dict.fromkeys(("key", "session", "turn", "response_id"), "clawpipe.data.capture.sessions:_add_feedback"),
        "time": _STATUS,
        **dict.fromkeys(("id", "value", "comment"), f"{_CAPTURE}:judgement_of"),
        "correction": "clawpipe.data.importers.formats.captured_faults:corrections",
    },
    "Done": {
        **dict.fromkeys(("key", "session"), "clawpipe.record.removal.captured:CapturedRecords.covers"),
        "time": _PEOPLE,
    },
    "End": {"time": _PEOPLE},
}

COLUMNS: dict[str, dict[str, str]] = {
    "trajectories": {
        **dict.fromkeys(("trajectory_id", "source", "status", "tool_calls", "tool_errors"), f"{_SQL}/measures.sql"),
        **dict.fromkeys(("item_id", "environment", "messages", "finish_reason", "session_id", "user_id"), f"{_SQL}/measures.sql"),
        **dict.fromkeys(("kinds", "logprobs_kind", "temperature", "tokens", "policy_version", "turns"), f"{_SQL}/measures.sql"),
        **dict.fromkeys(("token_ids", "logprobs", "prompt_tokens", "group_id", "rollout_index"), f"{_SQL}/measures.sql"),
        **dict.fromkeys(("loss_mask", "renderer_digest"), f"{_SQL}/70_samples.sql"),
        **dict.fromkeys(("rendered_ids", "rendered_mask", "rendered_logprobs", "rendered_policy"), f"{_SQL}/70_samples.sql"),
        "tools": "clawpipe.play.judging.rewards:_offered",
        "model": "clawpipe.serve.export.datasets:_beside",
        "split": f"{_SQL}/measures.sql",
        "seed": "clawpipe.learn.evaluation.heldout.heldout:results_of",
        **dict.fromkeys(("ended", "verdict", "error", "turn_rewards"), "clawpipe.play.environments.ending:Ending.from_row"),
        "origin": "clawpipe.record.lineage.trace:_sources",
        "extra": "clawpipe.data.forgotten.sources:read_keys",
    },
    "scores": {
        **dict.fromkeys(("trajectory_id", "turn", "scorer", "origin", "value", "success", "hints"), f"{_SQL}/10_join.sql"),
        "demonstration": f"{_SQL}/10_join.sql",
        **dict.fromkeys(("reason", "evidence"), "clawpipe.play.judging.rescore"),
    },
    "preference_pairs": {
        **dict.fromkeys(("pair_id", "item_id", "prompt", "chosen", "rejected"), f"{_SQL}/stored_pairs.sql"),
        **dict.fromkeys(("chosen_id", "rejected_id"), "clawpipe.data.forgotten.find:_follow"),
        **dict.fromkeys(("chosen_token_ids", "chosen_loss_mask"), "clawpipe.learn.evaluation.heldout.turns:heldout_tokens"),
        **dict.fromkeys(("rejected_token_ids", "rejected_loss_mask", "policy_version", "renderer_digest"), _CONTRACT),
        **dict.fromkeys(("prompt_tokens", "tokens"), "clawpipe.learn.training.data.pairs:_pair"),
        **dict.fromkeys(("group_id", "temperature", "weight"), "clawpipe.learn.training.data.pairs:_side"),
        "strategy": f"{_SQL}/65_pairs_choice.sql",
        "origin": "clawpipe.record.lineage.trace:_sources",
        **dict.fromkeys(("margin", "extra", "session_id", "user_id", "tools"), _PAIR_OUT),
    },
    "task_items": {
        **dict.fromkeys(("item_id", "environment", "kind", "slice"), f"{_SQL}/68_sampling.sql"),
        **dict.fromkeys(("identity", "split", "messages"), f"{_SQL}/30_decontaminate.sql"),
        "truth": "clawpipe.play.environments.single_turn:SingleTurn._truth",
        "ordinal": "clawpipe.play.rollouts.generate:item_rows",
        **dict.fromkeys(("session_id", "user_id"), _OWNER),
        "origin": "clawpipe.data.ingest.intake.pairs:item_row",
    },
    "quarantine": {
        "dataset": "clawpipe.play.recorded.vocabulary",
        **dict.fromkeys(("row_id", "reasons"), "clawpipe.data.ingest.captured.captured_sessions"),
        "row": "clawpipe.data.ingest.intake.intake",
    },
}
