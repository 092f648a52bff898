"""Compat: configs that were written for other programs -> job files of ours."""
