"""The version of this release. `pyproject.toml` reads it here; surfaces, figures and spans show it."""

__version__ = "0.1.0"

#: The newest revision of the engine's schema that this code knows; each worker's heartbeat says it.
SCHEMA = "celeriac_0010"


def described(deployment: float) -> str:
    """Return the version, with the deployment of the application's code if one is set."""
    return f"{__version__} (deployment {deployment:.0f})" if deployment else __version__
