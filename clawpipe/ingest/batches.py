"""Records in batches on their way into the spools: named, redacted, made rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from clawpipe.importers.labels import Labels
from clawpipe.importers.openclaw import JudgeRecord
from clawpipe.importers.read import Record, Refusal
from clawpipe.importers.record import Conversation, Origin, Preference, Prompt
from clawpipe.importers.survey import UNNAMED_SESSIONS
from clawpipe.ingest.clean import Cleaner
from clawpipe.ingest.known import Known
from clawpipe.ingest.late import Turn, late_scores
from clawpipe.ingest.naming import Namer
from clawpipe.ingest.options import Options
from clawpipe.ingest.pairs import item_of, item_row, pair_id_of, pair_row
from clawpipe.ingest.repeats import Repeats
from clawpipe.ingest.rows import UNNAMED, Named, Row, exported_row, origin_of, score_rows, trajectory_row
from clawpipe.ingest.spool import Spool
from clawpipe.lineage.find import PARENT
from clawpipe.lineage.tombstones import REASON, Tombstones
from clawpipe.privacy.redact import redactor
from clawpipe.privacy.rules import Rule
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files, dataset_ref
from clawpipe.store.refs import DatasetRef

NAMES = ("trajectories", "scores", "preference_pairs", "task_items", "quarantine")
_ROWS, _CHARACTERS = 4096, 16 << 20  # a batch; redaction costs as much for one text as for thousands
_PIECE = 512  # rows that are objects before they become columns


class Batches:
    """Takes records and gives datasets. A context manager: the rules of redaction are set up for its length.

    Attributes:
        counts: trajectories, turns, side_turns, with_tokens, unnamed_policy, lost_tokens (to a secret), repeated (records that are
            stored already).
        of_files: turns, side_turns and with_session by file.
        refused: reasons of records that no dataset may hold: of what was forgotten nothing is kept but the count.
    """

    def __init__(
        self,
        store: Store,
        work: Path,
        stored: Mapping[str, Sequence[str]],
        options: Options,
        labels: Labels,
        forgotten: Tombstones | None = None,
        rules: Sequence[Rule] | None = None,
    ) -> None:
        self.counts, self.refused = Counter[str](), Counter[str]()
        self.of_files = defaultdict[str, Counter[str]](Counter)
        self._forgotten, self._forgotten_lines = forgotten or Tombstones(), set[Origin | None]()
        self._store, self._stored, self._options, self._labels, self._rules = store, stored, options, labels, rules
        self._spools = {name: Spool(work, name) for name in NAMES}
        self._namer = Namer(self._known("trajectories", "trajectory_id"), self._known("trajectories", "item_id"), options.user)
        self._repeats = Repeats(store, self._files("trajectories"), options.user)
        self._pairs = self._known("preference_pairs", "pair_id")
        self._items = self._known("task_items", "item_id")
        self._new: set[str] = set()
        self._named: list[Named] = []
        self._preferences: list[tuple[Preference, str]] = []
        self._prompts: list[tuple[Prompt, str]] = []
        self._refused: list[Row] = []
        self._characters, self._grown = 0, False

    def __enter__(self) -> Batches:
        with ExitStack() as stack:
            self._cleaner = Cleaner(stack.enter_context(redactor(rules=self._rules)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    @property
    def redactions(self) -> Counter[str]:
        """How often each rule of redaction applied."""
        return self._cleaner.found

    def next_file(self, grown: bool) -> None:
        """What comes now is of another file, or, `grown`, of the part that one has grown by."""
        self._namer.next_file()
        self._grown = grown

    def add(self, record: Record) -> None:
        if isinstance(record, Conversation):
            self._add_conversation(record)
        elif isinstance(record, Refusal):
            self._refused.append(_refused(record, self._forgotten, self._options.user))
        elif isinstance(record, Preference):
            self._add_pair(record)
        else:
            self._add_prompt(record)
        held = (self._named, self._preferences, self._prompts, self._refused)
        if self._characters > _CHARACTERS or sum(map(len, held)) >= _ROWS:
            self.flush()

    def flush(self) -> None:
        """Rows of all that was added, without secrets, to the spools."""
        self._characters = 0
        self._flush_conversations()
        pairs = self._cleaner.pairs([pair for pair, _ in self._preferences])
        names = [name for _, name in self._preferences]
        rows = [pair_row(*each, self._options.user) for each in zip(pairs, names, strict=True)]
        self._spools["preference_pairs"].add(rows)
        prompts = self._cleaner.prompts([prompt for prompt, _ in self._prompts])
        first = self._spools["task_items"].rows
        of_items, user = [name for _, name in self._prompts], self._options.user
        items = [item_row(*each, first + number, user) for number, each in enumerate(zip(prompts, of_items, strict=True))]
        self._spools["task_items"].add(items)
        self._spools["quarantine"].add(self._cleaner.values(self._refused))
        for held in (self._preferences, self._prompts, self._refused):
            held.clear()

    def _flush_conversations(self) -> None:
        named, self._named = self._named, []
        redacted = self._cleaner.conversations([one.conversation for one in named])
        marked = self._repeats.as_context([conversation for conversation, _ in redacted])
        clean = [(conversation, changed) for conversation, (_, changed) in zip(marked, redacted, strict=True)]
        for start in range(0, len(named), _PIECE):
            self._spool(named[start : start + _PIECE], clean[start : start + _PIECE])

    def _spool(self, named: Sequence[Named], clean: Sequence[tuple[Conversation, bool]]) -> None:
        rows, scores = [], []
        for before, (conversation, changed) in zip(named, clean, strict=True):
            after = before if conversation is before.conversation else replace(before, conversation=conversation)
            self.counts["lost_tokens"] += changed and before.conversation.tokens is not None
            rows.append(self._row(after, changed))
            scores += score_rows(after)
        self._spools["trajectories"].add(rows)
        self._spools["scores"].add(scores)

    def add_late(self, judged: Mapping[Turn, Sequence[JudgeRecord]]) -> int:
        """Judge records of turns that earlier runs have stored. Returns of how many records nobody recorded the turn."""
        records = [record for of_turn in judged.values() for record in of_turn]
        clean = iter(self._cleaner.judgements([record.judgement for record in records]))
        kept = {turn: [replace(record, judgement=next(clean)) for record in of_turn] for turn, of_turn in judged.items()}
        late = late_scores(self._store, self._files("trajectories"), self._files("scores"), kept)
        self._spools["scores"].add(late.rows)
        self.counts["repeated"] += late.repeated
        return late.unmatched

    def publish(self) -> dict[str, DatasetRef]:
        """The datasets by name: `trajectories` always, the others where they have a row."""
        self.flush()
        return {name: spool.publish(self._store) for name, spool in self._spools.items() if spool.rows or name == "trajectories"}

    def _known(self, name: str, column: str) -> Known:
        return Known(self._store, self._files(name), column)

    def _files(self, name: str) -> list[Path]:
        """What earlier runs have stored."""
        refs = [dataset_ref(self._store, name, digest) for digest in self._stored.get(name, ())]
        return [file for ref in refs for file in dataset_files(self._store, ref)]

    def _add_conversation(self, conversation: Conversation) -> None:
        if self._is_forgotten(conversation):
            self._set_aside(conversation)
            return
        named = self._namer.name(conversation, self._grown)
        if named is None:
            self.counts["repeated"] += 1
            return
        if self._forgotten.covers_row(named.trajectory_id):
            self._set_aside(conversation)
            return
        self._named.append(self._labelled(named))
        tokens = conversation.tokens
        self._characters += sum(len(message.content) for message in conversation.messages) + (8 * len(tokens.ids) if tokens else 0)

    def _set_aside(self, conversation: Conversation) -> None:
        """Count what was forgotten, line by line; of one line there may be several conversations."""
        again = conversation.origin in self._forgotten_lines
        self.refused[REASON] += 0 if again else conversation.lines
        self._forgotten_lines.add(conversation.origin)

    def _is_forgotten(self, conversation: Conversation) -> bool:
        """Whether it is, or goes on from one that is: it begins with the same words."""
        sessions = (conversation.session, conversation.extra.get(PARENT))
        whose = conversation.user or self._options.user
        return any(self._forgotten.covers(str(one) if one else None, whose) for one in sessions)

    def _add_pair(self, pair: Preference) -> None:
        name = pair_id_of(pair)
        if self._forgotten.covers(pair.session, pair.user or self._options.user) or self._forgotten.covers_row(name):
            self.refused[REASON] += 1
            return
        if self._is_new(name, self._pairs):
            self._preferences.append((pair, name))

    def _add_prompt(self, prompt: Prompt) -> None:
        name = item_of(prompt.messages)
        if self._forgotten.covers(prompt.session, prompt.user or self._options.user) or self._forgotten.covers_row(name):
            self.refused[REASON] += 1
            return
        if self._is_new(name, self._items):
            self._prompts.append((prompt, name))

    def _is_new(self, name: str, known: Known) -> bool:
        if name in self._new or name in known:
            self.counts["repeated"] += 1
            return False
        self._new.add(name)
        return True

    def _row(self, named: Named, changed: bool) -> Row:
        conversation = named.conversation
        row = trajectory_row(named, self._options) if conversation.row is None else exported_row(conversation, changed)
        self.counts["trajectories"] += 1
        for counts in (self.counts, of_file := self.of_files[origin_of(conversation).file]):
            counts["turns"] += len(conversation.kinds)
            counts["side_turns"] += conversation.kinds.count("side")
        of_file["with_session"] += row["session_id"] not in UNNAMED_SESSIONS
        self.counts["with_tokens"] += row["tokens"] == "recorded"
        self.counts["unnamed_policy"] += row["policy_version"] == UNNAMED
        self.counts["unknown_temperature"] += row.get("logprobs_kind") == "none"
        return row

    def _labelled(self, named: Named) -> Named:
        """With its label: as a judgement, or beside the text where it does not judge."""
        conversation, label = named.conversation, self._labels.of(named.conversation.prompt, named.index)
        if label is None:
            return named
        if label.judgement is None:
            told = {"extra": dict(conversation.extra) | {"label": label.facts}}
        else:
            told = {"judgements": (*conversation.judgements, label.judgement)}
        return replace(named, conversation=replace(conversation, **told))


def _refused(refusal: Refusal, forgotten: Tombstones, user: str | None) -> Row:
    last = f"-{refusal.line + refusal.lines - 1}" if refusal.lines > 1 else ""
    place = f"{refusal.file}:{refusal.line}{last}" + (f"@{refusal.offset}" if refusal.offset >= 0 else "")
    text = refusal.data.decode("utf-8", "replace")
    kept = "" if forgotten.mentioned_in(text) or forgotten.covers(None, user) else text
    return {"dataset": "trajectories", "row_id": place, "reasons": [refusal.reason], "row": kept}
