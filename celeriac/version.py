"""Which release this is. `pyproject.toml` reads it here; surfaces, figures and spans tell it."""

__version__ = "0.1.0"


def described(deployment: float) -> str:
    """With which deployment of the application's code it is, where somebody says."""
    return f"{__version__} (deployment {deployment:.0f})" if deployment else __version__
