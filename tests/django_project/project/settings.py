import os
from importlib.util import find_spec

from sqlalchemy import make_url

SHOP_CELERY = os.environ.get("SHOP_CELERY", "celeriac")
SECRET_KEY = "of a test"
DEBUG = False
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "project.urls"
INSTALLED_APPS = [
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
    "django.contrib.messages", "django_celery_results", "celeriac.contrib.django", "shop",
]  # fmt: skip
if SHOP_CELERY == "celeriac":
    INSTALLED_APPS += ["post"] if find_spec("django.tasks") else ["post", "django_tasks"]
    INSTALLED_APPS += ["django_celery_beat"] if find_spec("django_celery_beat") else []
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware", "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]  # fmt: skip
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
    "OPTIONS": {"context_processors": [
        "django.contrib.auth.context_processors.auth", "django.contrib.messages.context_processors.messages",
        "django.template.context_processors.request",
    ]},
}]  # fmt: skip

_url = make_url(os.environ["SHOP_DATABASE"])
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": _url.database, "USER": _url.username or "",
        "PASSWORD": _url.password or "", "HOST": _url.host or _url.query.get("host", ""), "PORT": _url.port or
        _url.query.get("port", ""),
    },
    "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("SHOP_OTHER", ":memory:")},
}  # fmt: skip
DATABASE_ROUTERS = ["project.routers.Other"]

CELERY_BROKER_URL = os.environ["REDIS_URL"]
CELERY_RESULT_BACKEND = "django-db" if SHOP_CELERY == "stock" else None
CELERY_TASK_ALWAYS_EAGER = "SHOP_EAGER" in os.environ
CELERY_TASK_EAGER_PROPAGATES = True
if SHOP_CELERY == "celeriac":
    _BACKEND = {"BACKEND": "celeriac.contrib.django.Backend"}
    TASKS = {
        "default": {**_BACKEND, "QUEUES": ["default", "letters"]},
        "stubborn": {**_BACKEND, "OPTIONS": {"autoretry_for": (ValueError,), "retry_backoff": 60}},
    }
CELERIAC_ATOMIC = "SHOP_NOT_ATOMIC" not in os.environ
