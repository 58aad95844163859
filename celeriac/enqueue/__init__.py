"""Turn calls into rows."""
