"""Why a task has not started: the checks in their order, what has to happen first, and who is in its way."""
