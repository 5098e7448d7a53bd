"""What users call: `split`, `split_into`, plans and explanations.

`split` handles ndarrays itself; `run` adapts anything else, or sends it to `lazy` (Dask).
`split_plan` has plans with public methods, `explain` and `explanation` say what would happen, and
`warmup` loads what later splits need. Operators, drop-ins, files and users call these modules.
"""
