"""Members: a run that several machines do together, from a plan file in the output. One machine begins the run and
watches it (beginning.py, attending.py); the others join it (joining.py, member.py, closing.py)."""
