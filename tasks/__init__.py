"""What runs: the systems' tasks, a module a system."""

from tasks import instasites, old_thumbnails, stale_thumbnails, stores, subreddits, thumbnails
from tasks.app import app

__all__ = ["app", "instasites", "old_thumbnails", "stale_thumbnails", "stores", "subreddits", "thumbnails"]
