"""Text to files on disk and back: tokens, suffix index, dense index, manifest."""
