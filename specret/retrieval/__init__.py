"""Context to draft: guesses from stores and from the text so far."""
