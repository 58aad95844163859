"""An app with endpoints that break: what a stranger is told of it."""

from __future__ import annotations

from fastapi import APIRouter

from celeriac import Celeriac, ConfigurationError
from celeriac.api.app import App
from celeriac.api.callers import Reader

app = Celeriac("broken", routers="tests.api.broken:routers", set_as_current=False)

router = APIRouter()

SECRET = "hunter2"


@router.get("/api/broken/code")
def code(_: Reader) -> None:
    raise RuntimeError(f"the password is {SECRET}")


@router.get("/api/broken/sql")
def sql(app: App, _: Reader) -> None:
    with app.database.statement() as connection:
        connection.exec_driver_sql(f"SELECT {SECRET} FROM nowhere")


@router.get("/api/broken/engine")
def engine(_: Reader) -> None:
    raise ConfigurationError(f"DATABASE_URL={SECRET}")


@router.get("/api/broken/slow")
def slow(app: App, _: Reader) -> None:
    with app.database.statement() as connection:
        connection.exec_driver_sql("SELECT pg_sleep(60)")


routers = (router,)
