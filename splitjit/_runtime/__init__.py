"""What runs a copy: kernels that are loaded or compiled, and the threads that run them.

`loading` links kernels, or compiles them, and no split waits for another thread that does;
`kernel_files` keeps them. `threads` owns the memory that callers and helpers share, and counts what
may run at once; `events` writes the log. `_copy`, `_api`, `_njit` and the command call these
modules, which know loops and addresses, but no plan.
"""
