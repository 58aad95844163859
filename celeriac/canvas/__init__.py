"""Canvas: Celery's chains, groups and chords as rows that wait for other rows."""
