"""Kinds of fields: each is a value that knows its tokens, its columns, and how a value becomes a block and back."""
