"""Measurements: speed, tokens per step and losslessness, of all methods in one run."""
