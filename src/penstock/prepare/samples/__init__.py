"""Samples: values that a user's function yields, their types, and their groups."""
