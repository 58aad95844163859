"""Turn rows into tickets: select fairly, claim, publish."""
