"""The formats of other programs: exports of chats, logs of agents, messages of frameworks, traces, results of evaluations."""

from __future__ import annotations

from clawpipe.data.importers.formats.chats.chatgpt import is_chatgpt, read_chatgpt
from clawpipe.data.importers.formats.chats.claude_ai import is_claude_ai, read_claude_ai
from clawpipe.data.importers.formats.chats.librechat import is_librechat, read_librechat
from clawpipe.data.importers.formats.chats.oasst import is_oasst, is_oasst_message, join_oasst, read_oasst
from clawpipe.data.importers.formats.chats.open_webui import is_open_webui, read_open_webui
from clawpipe.data.importers.formats.coding.aider import is_aider, read_aider
from clawpipe.data.importers.formats.coding.copilot import is_copilot, is_copilot_cli, join_copilot_cli, read_copilot
from clawpipe.data.importers.formats.coding.gemini_cli import is_gemini_cli, join_gemini_cli
from clawpipe.data.importers.formats.coding.opencode import is_opencode, read_opencode
from clawpipe.data.importers.formats.coding.openhands import (
    is_openhands,
    is_openhands_result,
    join_openhands,
    read_openhands_result,
)
from clawpipe.data.importers.formats.format import Format, alone
from clawpipe.data.importers.formats.frameworks.autogen import is_autogen, read_autogen
from clawpipe.data.importers.formats.frameworks.langchain import is_langchain, is_message, join_langchain, read_langchain
from clawpipe.data.importers.formats.frameworks.smolagents import (
    is_smolagents,
    is_smolagents_step,
    join_smolagents,
    read_smolagents,
)
from clawpipe.data.importers.formats.openclaw_sessions import is_openclaw_session, join_openclaw_session
from clawpipe.data.importers.formats.results.atif import is_atif, read_atif
from clawpipe.data.importers.formats.results.inspect_logs import is_inspect, is_inspect_sample, read_inspect, read_inspect_sample
from clawpipe.data.importers.formats.results.swe_agent import is_mini_swe_agent, is_swe_agent, read_mini_swe_agent, read_swe_agent
from clawpipe.data.importers.formats.results.tau import is_tau, is_tau2, read_tau, read_tau2
from clawpipe.data.importers.formats.results.tool_benchmarks import (
    is_bfcl_item,
    is_bfcl_result,
    is_toolbench,
    is_xlam,
    read_bfcl_item,
    read_bfcl_result,
    read_toolbench,
    read_xlam,
)
from clawpipe.data.importers.formats.results.verifiers import is_verifiers, read_verifiers

CHATS = (
    Format(
        "chatgpt",
        is_chatgpt,
        read_chatgpt,
        has_sessions=True,
        about="ChatGPT's `conversations.json`: the branch that is shown, calls of its tools, custom instructions",
        marks=("mapping", "current_node"),
    ),
    Format(
        "claude-ai",
        is_claude_ai,
        read_claude_ai,
        has_sessions=True,
        about="Claude.ai's `conversations.json`: thoughts, calls, texts of attached files",
        marks=("uuid", "chat_messages"),
        tried="its schema",
    ),
    Format(
        "open-webui",
        is_open_webui,
        read_open_webui,
        has_sessions=True,
        about="exports of Open WebUI: the branch that is shown, thoughts and calls in its text, thumbs",
        marks=("chat", "history"),
        tried="its schema",
    ),
    Format(
        "librechat",
        is_librechat,
        read_librechat,
        has_sessions=True,
        about="exports of LibreChat: the branch that is shown, thoughts, calls, thumbs",
        marks=("conversationId", "messages"),
        tried="its schema",
    ),
    Format(
        "oasst",
        is_oasst,
        read_oasst,
        has_sessions=True,
        about="trees of messages of Open Assistant: the answers that people ranked best, and preferences of the others",
        marks=("message_tree_id", "prompt"),
        tried="its schema",
    ),
    Format(
        "oasst-messages",
        is_oasst_message,
        join=join_oasst,
        has_sessions=True,
        about="the same as single messages, as on its page of the hub",
        marks=("message_id", "parent_id", "message_tree_id", "text"),
        tried="its schema",
    ),
)
AGENTS = (
    Format(
        "openclaw-session",
        is_openclaw_session,
        join=join_openclaw_session,
        has_sessions=True,
        about="sessions of OpenClaw and of pi: branches, compactions; replies to heartbeats and cron jobs are side turns",
        marks=("type", "id", "parentId", "timestamp"),
        tried="its schema",
    ),
    Format(
        "copilot",
        is_copilot,
        read_copilot,
        has_sessions=True,
        about="chats that VS Code exports of GitHub Copilot: the rounds of each request, thumbs",
        marks=("responderUsername", "requests"),
        tried="its schema",
    ),
    Format(
        "copilot-cli",
        is_copilot_cli,
        join=join_copilot_cli,
        has_sessions=True,
        about="sessions of Copilot's CLI (`events.jsonl`), an event on each line",
        marks=("type", "data", "timestamp"),
        tried="its schema",
    ),
    Format(
        "opencode",
        is_opencode,
        read_opencode,
        has_sessions=True,
        about="sessions that `opencode export` writes: thoughts, calls with their results",
        marks=("info", "messages"),
        tried="its schema",
    ),
    Format(
        "openhands",
        is_openhands,
        join=join_openhands,
        has_sessions=True,
        about="events of OpenHands, a folder of them, lines or an array, and those of versions before its SDK",
        marks=("kind", "source", "timestamp"),
    ),
    Format(
        "openhands-result",
        is_openhands_result,
        read_openhands_result,
        has_sessions=True,
        about="results of OpenHands' evaluations: the events in `history`, and whether the task was resolved",
        marks=("instance_id", "history"),
        tried="its schema",
    ),
    Format(
        "aider",
        is_aider,
        read_aider,
        has_sessions=True,
        about="Aider's `.aider.chat.history.md`: each chat of the file",
        marks=("aider_chat",),
    ),
)
FRAMEWORKS = (
    Format(
        "autogen",
        is_autogen,
        read_autogen,
        about="results of AutoGen's teams, and the states of its agents",
        marks=("messages", "stop_reason"),
        tried="its library",
    ),
    Format(
        "langchain",
        is_langchain,
        read_langchain,
        has_sessions=True,
        about="states of LangGraph and lists of LangChain's messages, by `model_dump`, `messages_to_dict` or `dumpd`",
        marks=("messages", "values"),
        tried="its library",
    ),
    Format(
        "smolagents",
        is_smolagents,
        read_smolagents,
        about="results of smolagents' runs, with their steps",
        marks=("steps", "state"),
        tried="its library",
    ),
)
RESULTS = (
    Format(
        "inspect",
        is_inspect,
        read_inspect,
        has_sessions=True,
        about="logs of Inspect as JSON, with the score of each sample",
        marks=("eval", "samples"),
    ),
    Format(
        "inspect-sample",
        is_inspect_sample,
        read_inspect_sample,
        has_sessions=True,
        about="samples of Inspect, of which an `.eval` file is made",
        marks=("epoch", "input", "target", "messages"),
    ),
    Format(
        "atif",
        is_atif,
        read_atif,
        has_sessions=True,
        about="trajectories of Harbor and others in ATIF",
        marks=("schema_version", "steps", "agent"),
    ),
    Format(
        "verifiers",
        is_verifiers,
        alone(read_verifiers),
        about="`results.jsonl` of verifiers: rewards, and how rollouts ended",
        marks=("example_id", "prompt", "completion", "reward"),
        tried="its schema",
    ),
    Format(
        "bfcl",
        is_bfcl_item,
        alone(read_bfcl_item),
        about="items of the Berkeley Function Calling Leaderboard: tasks with tools",
        marks=("id", "question", "function"),
        tried="its schema",
    ),
    Format(
        "bfcl-result",
        is_bfcl_result,
        read_bfcl_result,
        has_sessions=True,
        about="results of that leaderboard with their log (`--include-input-log`)",
        marks=("id", "result", "inference_log"),
        tried="its schema",
    ),
    Format(
        "toolbench",
        is_toolbench,
        read_toolbench,
        about="answers of ToolBench: the way that led to the answer",
        marks=("answer_generation", "win"),
        tried="its schema",
    ),
    Format(
        "xlam",
        is_xlam,
        read_xlam,
        about="rows of xLAM's function calling: a request, tools, and the calls that answer it",
        marks=("query", "tools", "answers"),
        tried="its schema",
    ),
    Format(
        "tau-bench",
        is_tau,
        alone(read_tau),
        about="results of tau-bench: trials with their rewards; those of one instruction are attempts at one task",
        marks=("traj", "task_id"),
        tried="its schema",
    ),
    Format(
        "swe-agent",
        is_swe_agent,
        alone(read_swe_agent),
        about="SWE-agent's `.traj` files",
        marks=("history", "trajectory"),
        tried="its schema",
    ),
    Format(
        "mini-swe-agent",
        is_mini_swe_agent,
        read_mini_swe_agent,
        has_sessions=True,
        about="mini-SWE-agent's `.traj.json` files, and how the attempts ended",
        marks=("trajectory_format", "messages", "info"),
        tried="its schema",
    ),
)
TAU2 = Format(
    "tau2-bench",
    is_tau2,
    read_tau2,
    has_sessions=True,
    about="results of tau2-bench, and single simulations: with rewards; what the user does with tools of their own is in `extra`",
    marks=("simulations", "task_id", "termination_reason"),
    tried="its schema",
)
LINES = (  # whose records are pieces of a conversation, and look like those of many others: tried after the rest
    Format(
        "gemini-cli",
        is_gemini_cli,
        join=join_gemini_cli,
        has_sessions=True,
        about="sessions of Gemini CLI, as JSON and as lines: thoughts, calls with their results, rewound turns",
        marks=("sessionId", "projectHash"),
        tried="real files",
    ),
    Format(
        "langchain-messages",
        is_message,
        join=join_langchain,
        is_said=is_message,
        has_sessions=True,
        about="messages of LangChain alone, an array or lines",
        marks=("type", "content"),
        tried="its library",
    ),
    Format(
        "smolagents-steps",
        is_smolagents_step,
        join=join_smolagents,
        has_sessions=True,
        about="`agent.memory.get_full_steps()` of smolagents",
        marks=("step_number", "model_output"),
        tried="its library",
    ),
)
