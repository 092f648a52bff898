"""Doing it: tasks, ledger, resume, account -> Manifest."""
