"""Memory: the layout of a copy, its outputs and buffers, and the threads that copy."""
