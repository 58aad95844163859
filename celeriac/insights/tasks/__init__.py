"""Tasks: one of them, lists of them, counts, workflows; and what is shown to whom."""
