"""Fairness: what each account has and its fair share, the record of dispatch cycles, and who holds a key."""
