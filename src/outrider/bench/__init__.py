"""Benchmarks behind `outrider bench`: one workload for all stores, with baseline and peers.

Compare the figures of one run only: machines differ, and vary from hour to hour.
"""
