"""Proposing: the user's own files -> a job file that runs on them. `looking` -> `roles` -> `proposal`."""
