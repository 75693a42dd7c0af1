"""The frontier: the object users hold, its collaborators, and the values it returns."""

from outrider.frontier.frontier import Frontier

__all__ = ["Frontier"]
