"""Writes down what was fetched: no record torn, none doubled, whenever the process dies."""
