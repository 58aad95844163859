"""What the application stores: its own tables, beside the engine's."""

from models.base import Base
from models.instasites import Account, Instasite, InstasiteAnalytics, Template

__all__ = ["Account", "Base", "Instasite", "InstasiteAnalytics", "Template"]
