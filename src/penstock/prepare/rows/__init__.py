"""Rows: batches of records with their positions, in memory and on their way through a spill."""
