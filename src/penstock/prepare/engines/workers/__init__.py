"""Workers that come by themselves: members of a run, each on a machine of its own, share its tasks by leases.

A member claims tasks and does them with the engines of one machine (joined.py). The watcher does none, and tells what
the members do (onlooker.py). Both learn what is done from the ledger.
"""
