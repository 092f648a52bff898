"""Text: documents as rows of tokens. tokens.py ends a fold, pack.py cuts what it left into rows."""
