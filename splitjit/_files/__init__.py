"""Arrays in files: formats, patterns, parts, and new files that are complete when they appear.

A `TensorFile` of `formats` reads a format, and a `FileWriter` writes it. `patterns` choose how
tensors are split, `file_plan` is a split as data, `parts` plans and writes the parts, `joined`
presents parts as the file that they came from, and `tiles` moves the bytes. `places` and `staging`
keep all files whole, by way of `disk`. `splitjit.checkpoints` and the command call these modules;
`splitjit.files` has the public functions.
"""
