"""Near: documents whose similarity is known -> what a tool should have removed. For dedup.py."""
