"""The contract between Python and compiled code.

`calls` has the records that loops, builtin functions, users' compiled code and threads read, and
how Python calls compiled functions. `structs` says where arrays keep their fields, and `kernels`
names all kernels and the sizes for which they have code. `thresholds` has the numbers from which on
a way pays. Every package but the planner may call these modules; nothing here knows what a user
passed.
"""
