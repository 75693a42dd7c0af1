"""Crash rounds for stores in a file: killed processes, full disks, power cuts.

A call log outside of the store has what was acknowledged. The process that opens the file next
compares it with that log, and replays its calls into the invariant checker.
"""
