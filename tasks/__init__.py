"""What runs: the systems' tasks, a module a system."""

from tasks import instasites, stores, subreddits
from tasks.app import app

__all__ = ["app", "instasites", "stores", "subreddits"]
