"""What users call: `split`, `split_into`, plans and explanations.

`split` and plans copy a plain array at once if its plan knows how; else `splitjit._copy.run` does
the rest. `join` is the way back. `split_plan` has plans with public methods and the cache of plans,
`explain` says how a split would run, `warmup` loads what later splits need, and `protocols` has
types for type checkers. Operators, drop-ins, files and users call these modules.
"""
