"""How arrays are copied, where parts live in memory, and which threads copy."""
