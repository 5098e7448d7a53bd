"""The loops that copy chunks, and the pieces that they share.

A loop gets a chunk's number and the addresses of a copy. It reads the layout record, and neither
checks nor raises. `plain`, `stream`, `deinterleave` and `transpose` are the loops of a split, each
in an object file of its own; the layouter chooses one. `join` has the loops that copy back. `runs`
moves evenly spaced runs; `tiles` moves the pieces of `transpose` and of its way back.
"""
