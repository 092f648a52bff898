"""Arrays: samples as files of arrays. parts.py ends a fold, place.py places what it left, finishing.py is the end."""
