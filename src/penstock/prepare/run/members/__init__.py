"""Members: a run that several machines do together, by a plan file in the output. The machine that begins it watches
(beginning.py, attending.py); the others join it (member.py, closing.py)."""
