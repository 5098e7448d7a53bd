"""Plans: from user input to where each part starts, in integers only.

`arguments` turns what a user wrote into a shape, an axis and a rule; `rules` and `plan` turn these
into the lengths of the parts, or refuse them, and keep plans for later calls. Every other package
may call these modules, and kernels compile the functions of `rules`.
"""
