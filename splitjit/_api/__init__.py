"""What users call: `split`, `split_into`, plans and explanations.

`split` handles ndarrays itself; `run` sends anything else to `adapted` or to `lazy` (Dask).
`split_plan` has plans with public methods, `explain` and `explanation` say what would happen, and
`warmup` loads what later splits need. Operators, drop-ins, files and users call these modules.
"""
