"""One tree from several sources: merge, calibrate, choose nodes."""
