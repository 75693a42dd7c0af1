"""MEASURES: one workload for every store; ratios in one run, because machines are noisy."""
