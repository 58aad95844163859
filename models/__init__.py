"""What the application stores: its own tables, beside the engine's."""

from models import proxies, stores, subreddits
from models.base import Base
from models.instasites import Account, DnsAccount, Instasite, InstasiteAnalytics, Template
from models.legacy import DispensaryCrawlJob, JobRunLog, JobSchedule
from models.proxies import Proxy
from models.stores import Dispensary, Product, ProductChange
from models.subreddits import RedditAuthor, RedditBudget, RedditComment, RedditPost, Subreddit
from models.thumbnails import AgencyWebsite, ThumbnailCheck

#: Functions and views the migrations create beside the tables, in this order.
ROUTINES = (*stores.ROUTINES, *proxies.ROUTINES, *subreddits.ROUTINES)

__all__ = [
    "ROUTINES",
    "Account",
    "AgencyWebsite",
    "Base",
    "Dispensary",
    "DispensaryCrawlJob",
    "DnsAccount",
    "Instasite",
    "InstasiteAnalytics",
    "JobRunLog",
    "JobSchedule",
    "Product",
    "ProductChange",
    "Proxy",
    "RedditAuthor",
    "RedditBudget",
    "RedditComment",
    "RedditPost",
    "Subreddit",
    "Template",
    "ThumbnailCheck",
]
