"""Saved views: named filters of the tasks, one's own or shared."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response
from sqlalchemy import Connection

from celeriac import insights
from celeriac.dashboard import acts
from celeriac.dashboard.forms import Form, Sent
from celeriac.dashboard.guard import May
from celeriac.dashboard.page import Page
from celeriac.dashboard.tasks import is_filter, wanted
from celeriac.operate import views

router = APIRouter()

Viewer = Annotated[Page, Depends(May("view"))]
Sharer = Annotated[Page, Depends(May("views"))]


@router.post("/views/mine")
def save(page: Viewer, form: Sent) -> Response:
    return _save(page, form, page.bearer.name)


@router.post("/views/shared")
def share(page: Sharer, form: Sent) -> Response:
    return _save(page, form, views.ALL)


@router.post("/forget-view/mine")
def forget(page: Viewer, form: Sent) -> Response:
    return _forget(page, form, page.bearer.name)


@router.post("/forget-view/shared")
def forget_shared(page: Sharer, form: Sent) -> Response:
    return _forget(page, form, views.ALL)


def _save(page: Page, form: Form, owner: str) -> Response:
    name = form.name("name")
    values = {
        field: form.name(field)
        for field in form.fields
        if (is_filter(field) or field == "columns") and form.name(field)
    }

    def verb(connection: Connection) -> None:
        insights.refuse_sensitive(connection, wanted(values).arguments or ())
        views.save(connection, owner, name, values, by=page.bearer.name)

    return acts.change(page, page.to("tasks", **values), verb, f"The view {name} is saved.")


def _forget(page: Page, form: Form, owner: str) -> Response:
    name = form.name("name")

    def verb(connection: Connection) -> None:
        views.forget(connection, owner, name, by=page.bearer.name)

    return acts.change(page, page.to("tasks"), verb, f"The view {name} is forgotten.")
