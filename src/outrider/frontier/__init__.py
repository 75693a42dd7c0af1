"""The object users hold, and the values it answers with."""

from outrider.frontier.frontier import Frontier

__all__ = ["Frontier"]
