"""transformers models, loaded and prepared: the target and what is computed with it alone."""
