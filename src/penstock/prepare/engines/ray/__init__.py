"""Ray: tasks on the nodes of a cluster. Only paths, settings and ledger rows travel through Ray. Next: opening.py."""
