"""Compiled: what runs for every token, in numba, with the GIL released and the machine code kept on disk.

Each file has a plain counterpart that the tests hold it against: counter.py and order.py in
../order, address.py and reference.py in ../tokens, fill() of the kinds in ../kinds.
"""
