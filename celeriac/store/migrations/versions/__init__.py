"""The revisions, each a module beside its SQL."""
