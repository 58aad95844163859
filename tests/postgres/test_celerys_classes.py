"""What others hang on Celery's classes works as it does there, or is refused, or named, where it is declared."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Task as CeleryTask
from celery.app.registry import TaskRegistry
from celery.worker.request import Request

from celeriac import Celeriac, ConfigurationError
from tests.postgres.workflows import run_all
from tests.processes import Rows


class Keyed(CeleryTask):
    """A base class with options of its own, as of celery-singleton."""

    abstract = True
    unique_on: Any = None


@pytest.mark.parametrize("whole_app", [False, True])
def test_options_that_a_base_class_has_itself_are_no_options_misspelt(app: Celeriac, whole_app: bool) -> None:
    if whole_app:
        app = Celeriac("keyed", settings=app.settings, task_cls=Keyed, set_as_current=False)
    base: Any = {} if whole_app else {"base": Keyed}

    @app.task(name="keyed", unique_on=["x"], shared=False, **base)
    def keyed(x: int) -> None: ...

    assert keyed.unique_on == ["x"]
    with pytest.raises(ConfigurationError, match="there is no option 'unique_bye'; did you mean 'unique_by'"):
        app.task(name="other", unique_bye="x", shared=False, **base)(keyed.run)
    if whole_app:
        app.close()


def test_celery_singleton_declares_and_finds_the_one_that_waits(app: Celeriac, rows: Rows, redis_url: str) -> None:
    singleton = pytest.importorskip("celery_singleton")
    app.conf.singleton_backend_url = redis_url

    @app.task(name="lone", base=singleton.Singleton, unique_on=["x"], shared=False, prompt=False, chunk=9)
    def lone(x: int, y: int = 0) -> int:
        return x

    app.register_roles()
    first, again, other = lone.delay(1, y=1), lone.delay(1, y=2), lone.delay(2)
    assert first.id == again.id != other.id
    run_all(app)
    assert rows.one("SELECT count(*) FROM worker_tasks WHERE status = 'completed'") == 2
    assert lone.delay(1).id != first.id, "it has ended"


class Batches(CeleryTask):
    """As of celery-batches."""

    abstract = True

    def Strategy(self, task: Any, app: Any, consumer: Any) -> Any:  # noqa: N802
        return lambda *_: None


@pytest.mark.parametrize("given", [{"base": Batches}, {"Strategy": "elsewhere:strategy"}])
def test_a_strategy_of_ones_own_is_refused_with_what_to_use(app: Celeriac, given: Any) -> None:
    @app.task(name="many", shared=False, **given)
    def many(requests: Any) -> None: ...

    with pytest.raises(ConfigurationError, match=r"role 'many': Strategy of .* unique_by=ONE and a countdown"):
        _ = many.role


class Noting(Request):  # type: ignore[misc]
    def on_timeout(self, soft: bool, timeout: float) -> None: ...


def test_a_request_of_ones_own_is_named(app: Celeriac) -> None:
    class Own(CeleryTask):
        abstract = True
        Request = Noting

    @app.task(name="own", base=Own, shared=False)
    def own() -> None: ...

    @app.task(name="usual", shared=False)
    def usual() -> None: ...

    (note,) = app.notes()
    assert note.startswith("Request of own is not used: no message of a task reaches a worker; hooks of its class")


def test_retry_kwargs_are_those_of_autoretry_for(app: Celeriac) -> None:
    @app.task(name="alone", retry_kwargs={"max_retries": 9}, shared=False)
    def alone() -> None: ...

    @app.task(name="both", autoretry_for=(OSError,), retry_kwargs={"max_retries": 9}, shared=False)
    def both() -> None: ...

    assert (alone.role.max_retries, both.role.max_retries) == (3, 9)


class Named(TaskRegistry):
    def known(self) -> list[str]:
        return [name for name in self if name == "sync"]


@pytest.mark.parametrize("given", [Named, f"{__name__}:Named"])
def test_a_registry_of_ones_own_knows_roles_as_well(app: Celeriac, rows: Rows, given: Any) -> None:
    class Own(Celeriac):
        registry_cls = given

    mine = Own("mine", settings=app.settings, set_as_current=False)

    @mine.task(role="sync", shared=False, prompt=False)
    def sync() -> None: ...

    assert sync.delay().is_new
    assert mine.tasks.known() == ["sync"]
    mine.close()


def test_the_backend_has_a_client_of_redis(app: Celeriac) -> None:
    assert app.backend.client.set("a lock", 1, nx=True)
    assert app.backend.client.get("a lock") == b"1"
    app.backend.client.close()


def test_it_has_none_behind_sentinels(app: Celeriac) -> None:
    behind = Celeriac("behind", broker="sentinel://one:26379", set_as_current=False)
    behind.conf.broker_transport_options = {"master_name": "m"}
    with pytest.raises(NotImplementedError, match="behind Sentinels make a client"):
        _ = behind.backend.client
