"""Sudden ends, for any store behind a path: a child that is killed, a disk that lies, is full.

A ledger outside the store holds what was acknowledged; whatever reopens the file is compared to it.
"""
