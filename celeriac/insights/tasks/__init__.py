"""Tasks: one of them, lists of them, counts, workflows; and what each viewer may see."""
