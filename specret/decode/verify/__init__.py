"""Rules that decide how much of a draft is kept. Pure functions."""
