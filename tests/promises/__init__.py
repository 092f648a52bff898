"""One file a promise. Each runs real processes, real kills and real limits, and compares bytes."""
