"""The loops that copy chunks, each in an object file of its own, and the pieces that they share.

A loop gets a chunk's number and the addresses of a copy. It reads the layout record, and neither
checks nor raises. `plain`, `stream`, `deinterleave` and `transpose` are the loops; the layouter
chooses one. `runs` moves evenly spaced runs; `tiles` is a part of `transpose`.
"""
