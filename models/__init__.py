"""What the application stores: its own tables, beside the engine's."""

from models.base import Base
from models.instasites import Account, Instasite, InstasiteAnalytics, Template

#: Functions and views the migrations create beside the tables, in this order.
ROUTINES: tuple[str, ...] = ()

__all__ = ["ROUTINES", "Account", "Base", "Instasite", "InstasiteAnalytics", "Template"]
