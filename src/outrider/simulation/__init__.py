"""Simulated crawls behind `outrider simulate`: web, virtual clock and faults from one seed."""
