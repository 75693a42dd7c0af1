"""Visits URLs over HTTP: every request is bounded and guarded, and its result is a value."""
