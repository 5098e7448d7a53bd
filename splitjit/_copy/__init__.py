"""Memory: how arrays are copied, where the parts lie, and which threads copy."""
