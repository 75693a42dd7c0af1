"""Runs visits: claims tasks for free slots, calls handlers, and finishes their visits."""
