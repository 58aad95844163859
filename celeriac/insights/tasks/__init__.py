"""Tasks: one of them, lists of them, how many there are, workflows; and what is shown to whom."""
