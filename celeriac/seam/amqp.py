"""Celery's queues and connections: one queue a role, and a transport that drops messages that are not tickets."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from celery.app.amqp import AMQP, Queues
from celery.canvas import signature
from kombu.connection import Connection as StockConnection
from kombu.connection import maybe_channel

from celeriac.canvas import rests
from celeriac.errors import EnqueueRefused, NotReady
from celeriac.run import coroutines
from celeriac.run import run as running
from celeriac.run.run import Run
from celeriac.seam.transport import SentinelTransport, Transport

OURS = {"redis": Transport, "rediss": Transport, "sentinel": SentinelTransport}


class Connection(StockConnection):
    def get_transport_cls(self) -> Any:
        return OURS.get(self.transport_cls) or super().get_transport_cls()

    def info(self) -> Any:
        """Return what `celery inspect stats` and Flower show, without the access to the Sentinels."""
        info = super().info()
        options = info["transport_options"]
        return info | {"transport_options": {k: v for k, v in options.items() if k != "sentinel_kwargs"}}


class RoleQueues(AMQP):
    """The queues: without `-Q` a worker consumes every declared role's queue."""

    Connection = Connection

    def TaskConsumer(self, channel: Any, *args: Any, **options: Any) -> Any:  # noqa: N802 - Celery's name
        """Make the worker's consumer of tickets.

        Consumers that users make keep their channels, and get their own messages.
        """
        channel = maybe_channel(channel)
        channel.carries_tickets = True
        with channel.declaring():
            return super().TaskConsumer(channel, *args, **options)

    def _retry_publish(self, publish: Any, *args: Any, **kwargs: Any) -> Any:
        """Publish a link of a chain once: its row commits with the outcome of its task, so nothing has to be repeated.

        A link that is refused fails alone, because the task before it has done its work.
        """
        run = running.current()
        if run is None:
            return publish(*args, **kwargs)
        run.is_linking = True
        try:
            if rests.is_entry(getattr(publish, "__self__", None)):
                publish, kwargs["chain"] = self._following(run, publish.__self__, kwargs.get("chain"))
            return publish(*args, **kwargs)
        except NotReady:
            raise
        except (EnqueueRefused, rests.LinksGone) as refused:
            return self.app.backend.refuse_link(run, publish.__self__, kwargs.get("chain"), refused)
        finally:
            run.is_linking = False

    def _following(self, run: Run, entry: Any, chain: Any) -> tuple[Any, list[Any]]:
        """Return how to publish the link that this entry of a chain stands for, and the links after it.

        A handler that has taken links out of `self.request.chain` leaves the entry as the next. Raises LinksGone.
        """

        def read() -> list[Any]:
            with self.app.database.reading() as connection:
                return rests.continued(connection, [entry])

        *behind, link = coroutines.patiently(read, "read the link that follows")
        run.late_link = link["options"].get("task_id")
        return signature(link, app=self.app).apply_async, [*(chain or ()), *behind]

    @cached_property
    def queues(self) -> Queues:
        queues = self.Queues(self.app.conf.task_queues)
        for declared in self.app.roles.all():
            for lane in declared.lanes:
                queues.select_add(lane.queue)
        return queues
