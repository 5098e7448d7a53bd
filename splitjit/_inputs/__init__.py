"""Values of users: arrays of all libraries, and their memory as ndarrays."""
