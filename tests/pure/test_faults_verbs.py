"""Which verb's answer the harness of faults loses: what it says of the engine's own statements, and of a session's."""

from __future__ import annotations

import pytest
from sqlalchemy import TextClause, text

from celeriac.dispatch import claim, promote
from celeriac.enqueue import adopted, insert, ready
from celeriac.operate import cancel, policies, prioritise, steer
from celeriac.run import lease, start
from celeriac.schedules import tick
from celeriac.settle import release, write
from celeriac.store import look
from celeriac.store.prepared import Prepared
from faults.verbs import VERBS, Session, Spoken

OF: dict[str, TextClause] = {
    "retry by hand": steer.RETRY, "settle, mixed": write.SETTLE, "settle": write.COMPLETE,
    "start without a pass": start.START_FEW, "claim": claim.HOLD, "start": start.START, "renew": lease.RENEW,
    "release": release.RELEASE, "hand over": look.HAND_OVER, "let through": look.LET_THROUGH, "cancel": cancel.CANCEL,
    "prioritise": prioritise.PRIORITISE, "pause": policies.PAUSE, "enqueue": ready.INSERT_KEYLESS,
    "promote": promote.DUE, "tick": tick.ADVANCE, "adopt": adopted.NOTE,
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_is_known_by_the_engines_statement(verb: str) -> None:
    assert Spoken().verb(OF[verb].text.encode()) == verb


def test_what_only_reads_has_no_verb() -> None:
    assert Spoken().verb(b"SELECT count(*) FROM celeriac.tasks") is None


def test_a_prepared_statement_is_known_by_its_name() -> None:
    prepared, spoken = Prepared(text("INSERT INTO celeriac.tasks (task_id) VALUES (:id)"), {"id": "text"}), Spoken()
    execute = prepared.prepared.replace("%(id)s", "'x'").encode()
    assert spoken.verb(execute) is None
    assert spoken.verb(prepared.prepare.encode()) is None
    assert spoken.verb(execute) == "enqueue"


def test_a_transaction_commits_its_verbs_at_its_end() -> None:
    session, settles = Session(Spoken()), write.COMPLETE.text.encode()
    assert session.committed(settles) == {"settle"}, "by itself"
    said = [session.committed(one) for one in (b"BEGIN\0", settles, insert.UNDO.text.encode(), b"COMMIT\0")]
    assert said == [set(), set(), set(), {"settle"}]
    assert session.committed(b"BEGIN; " + settles) == set(), "in one message"
    assert session.committed(b"COMMIT\0") == {"settle"}
    for one in (b"BEGIN\0", settles, b"ROLLBACK\0"):
        assert session.committed(one) == set()
    assert session.committed(b"COMMIT\0") == set()
