"""Canvas: who waits for whom. Celery's chains, groups and chords, on rows."""
