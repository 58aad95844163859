"""What the embedded servers raise."""


class LocalStackError(RuntimeError):
    """The embedded stack cannot start or be joined; the message says what to do."""
