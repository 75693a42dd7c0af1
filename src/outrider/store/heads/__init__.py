"""Heads in memory: the claim algorithm in its clearest fast form, for stores of one process."""
