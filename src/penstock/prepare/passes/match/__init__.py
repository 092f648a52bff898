"""Match: rows that have a value another row had before. hash.py leaves their keys, match.py finds the losers."""
