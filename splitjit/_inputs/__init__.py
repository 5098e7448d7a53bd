"""User input: what `split` accepts, as ndarrays over the same memory.

Arrays, masked arrays and arrays of other libraries are adapted here, tensors of torch in the
folder `torch`. `_copy` and the operators call `adapt`, ask the result for an array to split, and
let it wrap the parts. `_api` and drop-ins ask what an object is.
"""
