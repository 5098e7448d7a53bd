"""The command ``splitjit``: it reads arguments, plans and writes, and prints.

`main` chooses the command, `parser` has its options, `on_files` calls `splitjit.files.checkpoints`,
and each other module prints for one command or a few. Nothing imports this package but
``python -m splitjit`` and the installed script.
"""
