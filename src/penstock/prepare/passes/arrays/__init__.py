"""Arrays: samples as files of arrays. parts.py ends a fold, place.py places what it left, finishing.py does the last
steps; batches.py keeps samples as batch files."""
