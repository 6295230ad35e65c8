"""The decoding loop: score, verify, commit. Knows no drafter and no store."""
