"""Runs visits: claims for free slots, calls handlers, and finishes what they end with."""
