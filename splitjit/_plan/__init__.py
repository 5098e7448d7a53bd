"""Plans: from user input to where each part starts, in integers only."""
