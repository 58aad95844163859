"""The engine's own migrations, with a version table of their own (celeriac.version)."""
