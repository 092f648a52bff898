"""Workers: members of a run, started on any machine, share its tasks by leases.

A member claims tasks and does them with the engine of its machine (joined.py). The watcher does none, and shows what
the members do (onlooker.py). Both learn from the ledger which tasks are done.
"""
