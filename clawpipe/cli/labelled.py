"""Lines of a terminal with a label before each, in which nothing of a file's text is obeyed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

_LABEL = 16  # width of the label before a line
_NARROWEST = 20


@dataclass(frozen=True)
class Labelled:
    """A text beside its label; the text never runs below the label, however narrow the terminal."""

    label: str
    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        for number, line in enumerate(self.text.wrap(console, max(options.max_width - _LABEL - 2, _NARROWEST))):
            yield Text.assemble((f"{self.label if not number else '':>{_LABEL}}  ", "dim"), line)
