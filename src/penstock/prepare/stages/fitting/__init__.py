"""Fitting: reductions that stages run over their rows. elements.py reads numbers out of columns."""
