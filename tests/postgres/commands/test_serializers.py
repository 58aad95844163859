"""Serializers that arguments and results cannot have, named by `celeriac check`."""

from __future__ import annotations

import json

from celeriac import Celeriac
from tests.postgres.commands.results import PROBLEM, Run


def test_check_fails_where_a_serializer_is_not_json(run: Run, app: Celeriac) -> None:
    app.conf.update(
        task_serializer="pickle", result_serializer="json", accept_content=["yaml"],
        result_accept_content=["application/json"],
        beat_schedule={"n": {"task": "sync", "schedule": 5, "args": (1,), "options": {"serializer": "pickle"}}},
    )  # fmt: skip

    @app.task(shared=False, role="compact", serializer="msgpack")
    def compact() -> None:
        compact.apply_async(serializer="own")
        compact.apply_async(serializer="json")

    answer = run("check", "--json")
    assert answer.exit_code == PROBLEM
    found = json.loads(answer.stdout)
    (problem,) = found["problems"]
    places, _, to_do = problem.partition(": ")
    assert places.rpartition(":")[0] == (
        "task_serializer='pickle', accept_content=['yaml'], serializer='pickle' of beat_schedule['n'], "
        f"serializer='msgpack' of compact, serializer='own' of {__name__}"
    )
    assert "kombu.utils.json.register_type" in to_do
    assert not any("serializer" in note for note in found["notes"]), "named once"
