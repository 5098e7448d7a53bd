"""Files of tensors: what the command writes, all of it or nothing."""
