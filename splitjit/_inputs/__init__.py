"""User input: arrays of all libraries, and their memory as ndarrays."""
