"""Plans: from the values that users give to where each part starts, in integers only."""
