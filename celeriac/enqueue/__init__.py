"""A call → rows."""
