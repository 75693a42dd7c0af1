"""What stands over the view for a while: a question, or something to read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from outrider.cli.watch_draw import pairs, plain

READING: Final = 100  # columns, at most


class Question(ModalScreen[bool]):
    """Yes or no; whatever is not yes is no."""

    DEFAULT_CSS = """
    Question { align: center middle; }
    Question Vertical { width: 60; max-width: 90%; height: auto; padding: 1 2; background: $panel;
        border: round $warning; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)"),
        Binding("n,escape,q,enter", "answer(False)"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """The question, and what can be said."""
        asked = Text.assemble(plain(self._question, "bold"), "\n\n", ("y", "bold"), " yes   ")
        asked.no_wrap, asked.overflow = False, "fold"
        asked.append_text(Text.assemble(("n", "bold"), " no"))
        with Vertical():
            yield Static(asked, markup=False)

    def action_answer(self, answer: bool) -> None:
        """Leave with it."""
        _ = self.dismiss(answer)


class Reading(ModalScreen[None]):
    """A title and lines, until a key is pressed."""

    DEFAULT_CSS = f"""
    Reading {{ align: center middle; }}
    Reading VerticalScroll {{ width: 90%; max-width: {READING}; height: auto; max-height: 100%;
        padding: 1 2; background: $panel; border: round $primary; scrollbar-size: 1 1; }}
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark", "leave", "back"),
    ]

    def __init__(self, title: str, pairs: Iterable[tuple[str, str]]) -> None:
        super().__init__()
        self._title, self._pairs = title, list(pairs)

    def compose(self) -> ComposeResult:
        """All of it, to scroll."""
        width = min(READING, self.app.size.width * 9 // 10) - 7
        told = pairs(self._pairs, width)
        with VerticalScroll():
            yield Static(Text.assemble(plain(self._title, "bold"), "\n\n", told), markup=False)

    def action_leave(self) -> None:
        """Back to the view."""
        _ = self.dismiss(None)
