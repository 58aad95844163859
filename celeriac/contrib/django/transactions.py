"""Enqueuing within `atomic()`: the row is inserted in that transaction, or in another database after its commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections, transaction
from django.db.backends.postgresql.psycopg_any import is_psycopg3

from celeriac.contrib.django.databases import alias_of
from celeriac.store.drivers import Answer, Statements

#: Postgres' types json and jsonb, which Django's driver returns as text.
_JSON = (114, 3802)


class DjangoStatements(Statements):
    """Statements on Django's connection of an alias, by psycopg 3 or 2, whichever Django uses."""

    def __init__(self, alias: str) -> None:
        super().__init__()
        self.alias = alias

    def fetch(self, statement: str, parameters: Mapping[str, Any]) -> Answer:
        with connections[self.alias].cursor() as cursor:
            cursor.execute(statement, parameters)
            while is_psycopg3 and cursor.nextset():
                pass  # psycopg 2 goes to the last answer by itself
            described = cursor.description or ()
            rows = cursor.fetchall() if described else []
        if texts := [place for place, column in enumerate(described) if column[1] in _JSON]:
            rows = [_parsed(row, texts) for row in rows]
        return [column[0] for column in described] or [""], rows

    @contextmanager
    def begin_nested(self) -> Iterator[None]:
        with transaction.atomic(using=self.alias):
            yield


def _parsed(row: Sequence[Any], texts: Sequence[int]) -> list[Any]:
    values = list(row)
    for place in texts:
        if isinstance(values[place], str):
            values[place] = json.loads(values[place])
    return values


class Atomic:
    """An open `atomic()`. `connection` is None if the engine's schema lies in another database."""

    def __init__(self, alias: str, *, has_schema: bool) -> None:
        self.alias = alias
        self.connection = DjangoStatements(alias) if has_schema else None

    def after_commit(self, act: Callable[[], None]) -> None:
        """Run `act` after the commit of the outermost block; never if that or the current savepoint is rolled back.

        Without autocommit Django takes no such call: there the workers' own poll finds the rows.
        """
        if connections[self.alias].in_atomic_block:
            transaction.on_commit(act, using=self.alias)

    def brings(self, task_ids: Collection[str]) -> set[str]:
        """Return which of these tasks are enqueued after its commit."""
        calls = [call for _, call, *_ in connections[self.alias].run_on_commit]
        return {task_id for call in calls for task_id in getattr(call, "task_ids", ())}.intersection(task_ids)


class Ambient:
    """Finds the transaction that Django has open in this thread, at each call; the schema's database comes first."""

    def __init__(self, database_url: str | None, around: Mapping[str, int] | None = None) -> None:
        """Take the address of the engine's schema, if it is not in the usual alias.

        `around`: for each alias the number of outer blocks to ignore, as a TestCase's.
        """
        self.database_url = database_url
        self._around = around or {}

    def inner(self) -> Ambient | None:
        """Return an Ambient that ignores the blocks open now, if these are a TestCase's alone; None otherwise."""
        opened = {one.alias: one.atomic_blocks for one in _in_atomic_blocks()}
        if not all(block._from_testcase for blocks in opened.values() for block in blocks):
            return None
        return Ambient(self.database_url, {alias: len(blocks) for alias, blocks in opened.items()})

    def __call__(self) -> Atomic | None:
        around = self._around
        opened = [one.alias for one in _in_atomic_blocks() if len(one.atomic_blocks) > around.get(one.alias, 0)]
        manual = [one.alias for one in connections.all(initialized_only=True) if _is_manual(one)]
        if not (opened or manual) or not getattr(settings, "CELERIAC_ATOMIC", True):
            return None
        with_schema = alias_of(self.database_url)
        if with_schema is not None and with_schema in (*opened, *manual):
            return Atomic(with_schema, has_schema=True)
        return Atomic(opened[0], has_schema=False) if opened else None


async def in_djangos_thread(act: Callable[[], Any]) -> Any:
    """Run it where Django's ORM runs for this coroutine: an `atomic()` around that is open there."""
    return await sync_to_async(act, thread_sensitive=True)()


def _is_manual(one: Any) -> bool:
    """Whether what is written on this connection waits for `transaction.commit()`: autocommit is off."""
    return one.connection is not None and not one.autocommit and not one.in_atomic_block


def _in_atomic_blocks() -> list[Any]:
    return [one for one in connections.all(initialized_only=True) if one.in_atomic_block]
