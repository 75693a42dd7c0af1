"""Visits URLs over HTTP: every request is bounded, guarded, and told as a value."""
