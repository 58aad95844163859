"""The errors of the embedded servers."""


class LocalStackError(RuntimeError):
    """The embedded stack cannot start or be joined; the message says what to do."""
