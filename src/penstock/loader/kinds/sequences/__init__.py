"""Sequences: windows of records, as they are or through an encoder of the user."""
