"""What runs: the systems' tasks, a module a system."""

from tasks import instasites, stale_thumbnails, stores, subreddits, thumbnails
from tasks.app import app

__all__ = ["app", "instasites", "stale_thumbnails", "stores", "subreddits", "thumbnails"]
