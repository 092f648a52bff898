"""Processes that are started here, that end with the one that started them, and that can say what they do."""
