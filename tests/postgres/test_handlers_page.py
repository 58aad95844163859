"""docs/handlers.md: its handler ends as the page says, and what it says `self` has is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from celery import _state
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from celeriac import Celeriac, Task, testing
from celeriac.store.connections import Database
from tests.deploy.written import of
from tests.processes import ROOT, Rows

PAGE = "docs/handlers.md"


class Base(DeclarativeBase):
    pass


class Receipt(Base):
    __tablename__ = "receipts"
    number: Mapped[str] = mapped_column(primary_key=True)


class Shop:
    """What the page's handler takes for granted."""

    def __init__(self, app: Celeriac) -> None:
        self.open, self.refuses, self.sent = True, 0, list[str]()

        @app.task(name="send_receipt")
        def send(number: str) -> None:
            self.sent.append(number)

        self.names: dict[str, Any] = {
            "__name__": __name__, "app": app, "shop_is_open": lambda: self.open, "pay": self.pay, "send_receipt": send,
        }  # fmt: skip
        (block,) = of(PAGE, "python")
        exec(block.text.replace('app = Celeriac("shop")\n', ""), self.names)
        app.register_roles()

    def pay(self, order: int, cents: int, key: str) -> Receipt:
        if self.refuses:
            self.refuses -= 1
            raise ConnectionError("no answer")
        return Receipt(number=key)


@pytest.fixture
def shop(app: Celeriac, database: Database, current: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    # What it declares is no task of later apps.
    monkeypatch.setattr(_state, "_on_app_finalizers", set(_state._on_app_finalizers))
    Base.metadata.create_all(database.engine)
    with testing.mode("manual"):
        yield Shop(app)


CHARGE = "SELECT status, retry_count, error_message FROM worker_tasks WHERE role = 'charge'"


def test_its_writes_and_what_it_enqueues_come_with_its_outcome(shop: Shop, rows: Rows) -> None:
    charge = shop.names["charge"].delay(7, 100)
    testing.drain()
    assert charge.result == {"receipt": charge.id}
    assert rows("SELECT number FROM receipts") == [(charge.id,)]
    assert shop.sent == [charge.id]


def test_it_ends_for_good_where_no_attempt_would_help(shop: Shop, rows: Rows) -> None:
    shop.names["charge"].delay(7, 0)
    testing.drain(raising=False)
    assert rows(CHARGE) == [("failed", 0, "Permanent: order 7 asks for 0 cents")]


def test_it_is_put_off_without_burning_an_attempt(shop: Shop, rows: Rows) -> None:
    shop.open = False
    shop.names["charge"].delay(7, 100)
    testing.drain()
    assert rows(CHARGE) == [("pending", 0, "the shop is closed")]
    assert rows("SELECT number FROM receipts") == []


def test_it_is_tried_again_under_the_same_key(shop: Shop, rows: Rows) -> None:
    shop.refuses = 1
    charge = shop.names["charge"].delay(7, 100)
    testing.drain()
    assert rows(CHARGE) == [("pending", 1, "ConnectionError: no answer")]
    testing.advance(60)
    testing.drain()
    assert rows("SELECT number FROM receipts") == [(charge.id,)]


def test_what_it_says_self_has_is_there() -> None:
    named = set(re.findall(r"`self\.(\w+)", (ROOT / PAGE).read_text()))
    assert len(named) > 10
    assert [name for name in named if not hasattr(Task, name)] == []
