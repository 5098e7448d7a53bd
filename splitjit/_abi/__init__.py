"""The contract between Python and compiled code.

`layout_record` has the words that a loop reads. `calls` has the records that builtin functions,
users' compiled code and threads read. `structs` says where arrays keep their fields, and `kernels`
names all kernels and the sizes for which they have code. `thresholds` has the numbers from which on
a way pays. `builtins` is for Python alone. Every package but the planner may call these
modules; nothing here knows what a user passed.
"""
