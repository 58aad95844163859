"""Which release this is. `pyproject.toml` reads it here; surfaces, figures and spans tell it."""

__version__ = "0.1.0"
