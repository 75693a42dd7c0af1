"""DECIDES: pure values and functions; no clock, no dice, no I/O, no logging, no async."""
