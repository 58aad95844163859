"""Fairness: what each account has and what would be fair, the record of passes, and who holds a key."""
