"""Many workers on one store, each a process with a ledger of its own; a judge who reads them all.

What a store says of itself proves nothing here: lost, doubled and too soon are counted from what
the workers were told and what the hosts saw.
"""
