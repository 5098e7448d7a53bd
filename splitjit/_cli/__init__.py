"""The command ``splitjit``: it reads arguments, plans and writes, and prints.

`main` chooses the command, and `parser` has its options. `on_files` has the commands that call
`splitjit.files.checkpoints`, and `on_kernels` the others. Nothing imports this package but
``python -m splitjit`` and the installed script.
"""
