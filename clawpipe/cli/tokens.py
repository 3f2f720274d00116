"""`clawpipe inspect --tokens`: rows as a model will see them, with the tokens that are trained, before anything is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from clawpipe.cli.labelled import Labelled
from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.words import plain

if TYPE_CHECKING:
    from clawpipe.data.importers.record import Conversation

_RUN = 240  # most tokens of a run to show
_BREAK = "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}"  # shows a line break that is a token
_TRAINED, _CONTEXT, _END = "bold green", "dim", "reverse green"


@dataclass(frozen=True)
class Run:
    """Tokens in a row that are all trained, or all context. `end` is the marker that ends a trained run, "" if it has none."""

    trained: bool
    tokens: int
    text: str
    end: str = ""


@dataclass(frozen=True)
class Seen:
    """One conversation as a model sees it.

    Attributes:
        recorded: the tokens are those that were sampled, and not made of the text.
        why_not: why it has no tokens; "" if it has.
    """

    ids: Sequence[int] = ()
    mask: Sequence[bool] = ()
    runs: tuple[Run, ...] = ()
    recorded: bool = False
    why_not: str = ""

    @property
    def trained(self) -> int:
        return sum(self.mask)

    def as_dict(self) -> JsonObject:
        runs = [{"trained": run.trained, "tokens": run.tokens, "text": run.text, "end": run.end} for run in self.runs]
        known: JsonObject = {"tokens": len(self.ids), "trained": self.trained, "recorded": self.recorded, "why_not": self.why_not}
        return known | {"runs": runs, "ids": list(self.ids), "mask": list(self.mask)}

    def lines(self) -> Iterator[Labelled]:
        """Yield each run beside what it is, then a summary."""
        from rich.text import Text

        if self.why_not:
            yield Labelled("no tokens", Text(self.why_not, "bold red"))
            return
        for run in self.runs:
            yield Labelled("trained" if run.trained else "context", Text.assemble(*_pieces(run)))
        yield Labelled("", Text(self.summary(), "bold"))

    def summary(self) -> str:
        """Say how many tokens there are, how many are trained, and whether each trained run has its end."""
        turns = [run for run in self.runs if run.trained]
        ends = sum(bool(run.end) for run in turns)
        made = "recorded" if self.recorded else "made of the text"
        said = f"{len(self.ids)} tokens, {made}; {self.trained} trained in {len(turns)} turns, {ends} of them with an end marker"
        return said if turns else f"{len(self.ids)} tokens, {made}; none is trained"


def _pieces(run: Run) -> Iterator[tuple[str, str]]:
    body = run.text[: len(run.text) - len(run.end)] if run.end else run.text
    yield plain(body).replace("\n", f"{_BREAK}\n").removesuffix("\n"), _TRAINED if run.trained else _CONTEXT
    if run.end:
        yield run.end, _END


def seer(model: str, tool_call_format: str | None) -> Callable[[Conversation], Seen]:
    """Return what shows a conversation as the model sees it.

    Args:
        model: a base model: built-in name, hub id or directory.
        tool_call_format: that of a night; None: the one that `clawpipe init` proposes for the model.

    Raises:
        ClawpipeError: the model cannot be found, or its tokenizer cannot be used.
    """
    from clawpipe.core.config.model import Model
    from clawpipe.model.policy.base import resolve_base
    from clawpipe.model.policy.text import render_row, renderers
    from clawpipe.model.policy.vocabulary import load_tokenizer
    from clawpipe.start.proposing.tool_call_format import proposed_format

    base = resolve_base(model).path
    chosen = Model.model_validate({"tool_call_format": tool_call_format or proposed_format(str(base))[0]}).tool_call_format
    tokenizer = load_tokenizer(base)
    renderer_of = renderers(tokenizer, chosen, [])
    ends = renderer_of(None).stop_ids

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False))

    def see(conversation: Conversation) -> Seen:
        if conversation.tokens is not None:
            ids, mask = conversation.tokens.ids, conversation.tokens.mask
            return Seen(ids, mask, tuple(_runs(ids, mask, ends, decode)), recorded=True)
        made = render_row(_row(conversation), renderer_of, ())
        if isinstance(made, str):
            return Seen(why_not=made)
        (ids, mask), _ = made
        return Seen(ids, mask, tuple(_runs(ids, mask, ends, decode)))

    return see


def _row(conversation: Conversation) -> JsonObject:
    """Return the fields of a stored row of which rendering makes tokens."""
    return {
        "messages": [message.as_dict() for message in conversation.messages],
        "kinds": list(conversation.kinds),
        "tools": conversation.tools,
        "status": conversation.status,
        "source": "imported",
        "finish_reason": None,
    }


def _runs(ids: Sequence[int], mask: Sequence[bool], ends: Sequence[int], decode: Callable[[Sequence[int]], str]) -> Iterator[Run]:
    """Yield the runs of tokens that are trained or not; a long one is cut in its middle."""
    for trained, places in groupby(range(len(ids)), key=lambda place: bool(mask[place])):
        run = [ids[place] for place in places]
        end = decode(run[-1:]) if trained and run[-1] in ends else ""
        yield Run(trained, len(run), _shown(run, decode), end)


def _shown(run: Sequence[int], decode: Callable[[Sequence[int]], str]) -> str:
    if len(run) <= _RUN:
        return decode(run)
    return f"{decode(run[: _RUN // 2])} ... ({len(run) - _RUN} tokens) ... {decode(run[-_RUN // 2 :])}"
