"""Tokens of events: the vocabulary, and values -> tokens and back."""
