"""Old names of modules, which work until 0.4: each warns, and is the module of the new name."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

_STOREYS = {  # where a package went that lay in `clawpipe` itself
    "core": "store ledger config contracts services",
    "data": "wire importers capture ingest curation similarity privacy",
    "model": "policy hosted engines planning",
    "play": "environments sandbox judging rollouts recorded workers clusters",
    "learn": "training annotation evaluation children",
    "record": "nights runs registry lineage removal tracking notifications reporting reviews",
    "serve": "gateway serving agents export deploying programs monitoring",
    "start": "sweeping mcp simulation talking",
}
_FILES = {  # what went elsewhere than its package
    "devices": "core.system.devices",
    "endings": "core.conversation.endings",
    "environments.user_errors": "core.user_code.user_errors",
    "evaluation.adding_up": "learn.evaluation.verdict.adding_up",
    "evaluation.answers": "learn.evaluation.heldout.answers",
    "evaluation.conversations": "learn.evaluation.heldout.conversations",
    "evaluation.draw": "learn.evaluation.heldout.draw",
    "evaluation.evidence": "learn.evaluation.verdict.evidence",
    "evaluation.gate": "learn.evaluation.verdict.gate",
    "evaluation.hacking": "learn.evaluation.verdict.hacking",
    "evaluation.heldout": "learn.evaluation.heldout.heldout",
    "evaluation.heldout_share": "learn.evaluation.heldout.heldout_share",
    "evaluation.holding": "learn.evaluation.heldout.holding",
    "evaluation.likelihood": "learn.evaluation.heldout.likelihood",
    "evaluation.looks": "learn.evaluation.verdict.looks",
    "evaluation.pairs": "learn.evaluation.heldout.pairs",
    "evaluation.preference": "learn.evaluation.heldout.preference",
    "evaluation.replay": "learn.evaluation.heldout.replay",
    "evaluation.results": "learn.evaluation.heldout.results",
    "evaluation.statistics": "learn.evaluation.verdict.statistics",
    "evaluation.turns": "learn.evaluation.heldout.turns",
    "evaluation.verdict": "learn.evaluation.verdict.verdict",
    "extensions": "core.user_code.extensions",
    "faults": "core.system.faults",
    "importers.answered": "data.importers.formats.answered",
    "importers.atropos": "data.importers.formats.atropos",
    "importers.branches": "data.importers.formats.branches",
    "importers.capture": "data.importers.formats.capture",
    "importers.chat": "data.importers.formats.chat",
    "importers.chat_fast_path": "data.importers.formats.chat_fast_path",
    "importers.chats": "data.importers.formats.chats",
    "importers.claude_code": "data.importers.formats.claude_code",
    "importers.codex": "data.importers.formats.codex",
    "importers.coding": "data.importers.formats.coding",
    "importers.format": "data.importers.formats.format",
    "importers.formats": "data.importers.formats.table",
    "importers.frameworks": "data.importers.formats.frameworks",
    "importers.hermes": "data.importers.formats.hermes",
    "importers.hints": "data.importers.read.hints",
    "importers.huggingface": "data.importers.formats.huggingface",
    "importers.labels": "data.importers.read.labels",
    "importers.mapping": "data.importers.read.mapping",
    "importers.native": "data.importers.formats.native",
    "importers.openclaw": "data.importers.formats.openclaw",
    "importers.programs": "data.importers.formats.programs",
    "importers.read": "data.importers.read.read",
    "importers.reading": "data.importers.read.reading",
    "importers.responses": "data.importers.formats.responses",
    "importers.results": "data.importers.formats.results",
    "importers.sharegpt": "data.importers.formats.sharegpt",
    "importers.spread": "data.importers.read.spread",
    "importers.survey": "data.importers.read.survey",
    "importers.telemetry": "data.importers.formats.telemetry",
    "importers.traces": "data.importers.formats.traces",
    "importers.user": "data.importers.read.user",
    "ingest.admission": "data.ingest.intake.admission",
    "ingest.captured": "data.ingest.captured.captured",
    "ingest.captured_sessions": "data.ingest.captured.captured_sessions",
    "ingest.claims": "data.ingest.intake.claims",
    "ingest.clean": "data.ingest.intake.clean",
    "ingest.dataset_writer": "data.ingest.intake.dataset_writer",
    "ingest.field_readers": "data.ingest.intake.field_readers",
    "ingest.intake": "data.ingest.intake.intake",
    "ingest.options": "data.ingest.intake.options",
    "ingest.orphan_judgements": "data.ingest.captured.orphan_judgements",
    "ingest.pairs": "data.ingest.intake.pairs",
    "ingest.pieces": "data.ingest.intake.pieces",
    "ingest.prepare": "data.ingest.intake.prepare",
    "ingest.propose": "start.proposing.propose",
    "ingest.readers": "data.ingest.intake.readers",
    "ingest.repeats": "data.ingest.intake.repeats",
    "ingest.report": "start.proposing.report",
    "ingest.rows": "data.ingest.intake.rows",
    "ingest.run": "data.ingest.intake.run",
    "ingest.state": "data.ingest.intake.state",
    "ingest.wire": "data.ingest.intake.wire",
    "ingest.worker": "data.ingest.intake.worker",
    "json_types": "core.basics.json_types",
    "lineage.find": "data.forgotten.find",
    "lineage.subject": "data.forgotten.subject",
    "lineage.tombstones": "data.forgotten.tombstones",
    "machine": "core.system.machine",
    "masking": "core.basics.masking",
    "messages": "core.conversation.messages",
    "monitoring.latest": "record.reporting.latest",
    "patterns": "core.basics.patterns",
    "plain_structs": "core.basics.plain_structs",
    "plain_yaml": "core.basics.plain_yaml",
    "ports": "core.system.ports",
    "processes": "core.system.processes",
    "progress": "core.system.progress",
    "quick_imports": "core.system.quick_imports",
    "schemas": "core.basics.schemas",
    "services.checks": "start.doctor.checks",
    "spread": "core.store.spread",
    "syntax": "core.basics.syntax",
    "words": "core.basics.words",
}
_NEW = {old: f"{storey}.{old}" for storey, rooms in _STOREYS.items() for old in rooms.split()} | _FILES


def new_name(module: str) -> str | None:
    """Return today's name of a module that 0.2 knew by another; None where the name did not change."""
    top, *inside = module.split(".")
    if top != "clawpipe" or not inside:
        return None
    for size in (2, 1):
        if new := _NEW.get(".".join(inside[:size])):
            return ".".join([top, new, *inside[size:]])
    return None


class _Alias(Loader):
    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has set the old name's


class _OldNames(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        new = new_name(name) if name.startswith("clawpipe.") else None
        found = find_spec(new) if new else None
        if not found:
            return None
        if found.submodule_search_locations is None:  # who imports a module imports its package, too: one warning is enough
            warnings.warn(f"{name} is now {new}; the old name goes with clawpipe 0.4", FutureWarning, stacklevel=2)
        return ModuleSpec(name, _Alias(found.name))


def install() -> None:
    """Let imports find modules by their old names; a second call changes nothing."""
    if not any(isinstance(finder, _OldNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OldNames())  # first: in a package's folder Python would find the file, and load it again
