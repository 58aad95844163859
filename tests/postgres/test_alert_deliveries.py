"""Each alert is told once as it begins and once as it ends, by webhook and mail, and no look waits for it."""

from __future__ import annotations

import json
import smtplib
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import sandbox
from celeriac import Celeriac, testing
from celeriac.alerts import deliver
from celeriac.operate import silences
from celeriac.repair import sweep
from celeriac.store.connections import Database
from tests.postgres.finished import finished, live_worker
from tests.processes import Rows, until
from tests.spelled import SAID, SECRET, is_told

LETTER = "INSERT INTO dead_letters (digest, reason, size, message) VALUES (sha256('x'), 'x', 1, 'x')"
LATER = "UPDATE alert_deliveries SET taken_at = taken_at - interval '2 minutes'"


class Hook:
    """A server that is told of alerts."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self.status = 204
        self.drips = False
        self.refused: set[str] = set()
        self.answers = threading.Event()
        self.answers.set()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hook.answers.wait(30)
                hook.told.append(said)
                hook.headers.append(self.headers)
                self.send_response(400 if said["name"] in hook.refused else hook.status)
                with suppress(OSError):
                    while hook.drips:
                        self.send_header("X-More", "to come")
                        self.flush_headers()
                        time.sleep(0.1)
                    self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook?token=secret"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.answers.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()
    yield hook
    hook.close()
    until(lambda: not deliver._sending.locked(), "the thread that sends to end")


@pytest.fixture
def telling(app: Celeriac, hook: Hook) -> Celeriac:
    app.settings = replace(app.settings, alert_webhook=hook.url)
    return app


def looked(app: Celeriac, rows: Rows) -> None:
    """And all is sent that can be."""
    until(lambda: not deliver._sending.locked(), "the last sending to end")
    rows(LATER)
    sweep(app, "alerts")
    until(lambda: not deliver._sending.locked(), "what there is to be sent")


SAYS = (
    "messages that are no task: 1, more than 0; `celeriac dead-letters list` lists them, "
    "`celeriac dead-letters replay` makes tasks of them"
)


def test_the_webhook_hears_once_of_the_beginning_and_once_of_the_end(telling: Celeriac, hook: Hook, rows: Rows) -> None:
    rows(LETTER)
    for _ in range(3):
        looked(telling, rows)
    rows("DELETE FROM dead_letters")
    for _ in range(2):
        looked(telling, rows)
    began, ended = hook.told
    assert began["runbook"] == "docs/runbooks/dead_letters.md"
    assert {name: began[name] for name in ("event", "name", "subject", "severity", "says", "value", "threshold")} == {
        "event": "began", "name": "dead_letters", "subject": "plain Celery", "severity": "warn", "value": 1,
        "says": SAYS, "threshold": 0,
    }  # fmt: skip
    assert (ended["event"], ended["name"], ended["subject"]) == ("ended", "dead_letters", "plain Celery")
    assert ended["since"][:19] == began["since"][:19]
    assert hook.headers[0]["Content-Type"] == "application/json"
    assert rows("SELECT FROM alert_deliveries") == []


def test_what_was_not_taken_is_sent_again_after_a_later_look_in_order(
    telling: Celeriac, hook: Hook, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    hook.status = 500
    rows(LETTER)
    looked(telling, rows)
    rows("DELETE FROM dead_letters")
    looked(telling, rows)
    assert [one["event"] for one in hook.told] == ["began", "began"]
    hook.status = 200
    looked(telling, rows)
    assert [(one["event"], one["id"]) for one in hook.told[2:]] == [("began", 1), ("ended", 2)]
    assert "127.0.0.1 answered 500" in caplog.text
    assert "secret" not in caplog.text


TOLD = """INSERT INTO alert_deliveries (channel, message) SELECT 'webhook', jsonb_build_object(
    'event', event, 'name', name, 'subject', 's') FROM (VALUES ('began', 'bad'), ('ended', 'bad'), ('began', 'good'))
    AS said (event, name)"""
RESTED = "UPDATE alert_deliveries SET tries = 4, taken_at = clock_timestamp() - :ago * interval '1 s' WHERE id = 1"


def test_one_that_is_never_taken_keeps_only_its_own_end_waiting(telling: Celeriac, hook: Hook, rows: Rows) -> None:
    hook.refused = {"bad"}
    rows(TOLD)
    looked(telling, rows)
    assert [(one["event"], one["name"]) for one in hook.told] == [("began", "bad"), ("began", "good")]
    assert rows("SELECT id, tries FROM alert_deliveries ORDER BY id") == [(1, 1), (2, 0)]


@pytest.mark.parametrize(("ago", "tries"), [(100, 4), (1000, 5)])
def test_what_was_not_taken_rests_longer_each_time(
    telling: Celeriac, hook: Hook, rows: Rows, ago: int, tries: int
) -> None:
    hook.refused = {"bad"}
    rows(TOLD)
    rows(RESTED, ago=ago)
    looked(telling, rows)
    assert rows("SELECT tries FROM alert_deliveries WHERE id = 1") == [(tries,)]


def test_one_channel_that_breaks_keeps_no_other(
    telling: Celeriac, hook: Hook, rows: Rows, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(*_: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(deliver, "SEND", {"webhook": deliver.post, "mail": breaks})
    monkeypatch.setattr(deliver, "channels", lambda _: ["mail", "webhook"])
    rows(LETTER)
    looked(telling, rows)
    assert [one["event"] for one in hook.told] == ["began"]
    assert "The mail did not take alert dead_letters (try 1): out of order" in caplog.text


def test_a_thread_that_cannot_start_is_tried_again(app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fails)
        with pytest.raises(RuntimeError):
            deliver.start(app.database, app.settings)
    assert not deliver._sending.locked()


def test_a_mail_server_over_tls_has_to_have_a_certificate_that_holds() -> None:
    server = deliver._server("smtps", "mail.shop.example")
    assert isinstance(server, smtplib.SMTP_SSL)
    assert (server.context.verify_mode, server.context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_what_took_too_long_to_connect_to_is_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliver, "LIMIT", 0.05)
    with pytest.raises(deliver.NotTaken):
        deliver._in_time(lambda: time.sleep(0.3), lambda: None)


def test_no_look_waits_for_who_is_told(telling: Celeriac, hook: Hook, rows: Rows) -> None:
    hook.answers.clear()
    rows(LETTER)
    assert sweep(telling, "alerts") == 1
    until(lambda: rows("SELECT FROM alert_deliveries WHERE tries = 1"), "it to be sent")
    assert sweep(telling, "alerts") == 0
    assert hook.told == []
    hook.answers.set()
    until(lambda: hook.told, "the answer")


def test_a_process_that_ends_waits_for_what_it_sends(telling: Celeriac, hook: Hook, rows: Rows) -> None:
    hook.answers.clear()
    rows(LETTER)
    sweep(telling, "alerts")
    threading.Timer(0.3, hook.answers.set).start()
    deliver._finish()
    assert rows("SELECT FROM alert_deliveries") == []


def test_who_does_not_answer_is_left_after_a_while(
    telling: Celeriac, hook: Hook, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "LIMIT", 0.4)
    hook.answers.clear()
    rows(LETTER)
    looked(telling, rows)
    assert rows("SELECT tries FROM alert_deliveries") == [(1,)]


def test_nor_is_one_waited_for_that_answers_for_ever(
    telling: Celeriac, hook: Hook, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "LIMIT", 0.4)
    hook.drips = True
    began = time.monotonic()
    rows(LETTER)
    looked(telling, rows)
    assert time.monotonic() - began < 5, "a hundred lines take ten seconds"
    hook.drips = False


def test_what_nobody_takes_for_a_day_is_given_up(
    telling: Celeriac, hook: Hook, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    hook.status = 403
    rows(LETTER)
    looked(telling, rows)
    rows("UPDATE alert_deliveries SET at = at - interval '25 hours'")
    looked(telling, rows)
    assert rows("SELECT FROM alert_deliveries") == []
    assert "The webhook was not told of alert dead_letters: plain Celery, for a day" in caplog.text


def test_a_silence_keeps_it_from_being_told_and_its_end_lets_it(
    telling: Celeriac, hook: Hook, rows: Rows, database: Database
) -> None:
    with database.transaction() as connection:
        silences.silence(connection, "dead_letters", by="ann", seconds=600)
    rows(LETTER)
    looked(telling, rows)
    assert hook.told == []
    assert rows("SELECT is_told FROM alerts") == [(False,)]
    with database.transaction() as connection:
        silences.end_silence(connection, "dead_letters", by="ann")
    looked(telling, rows)
    assert [one["event"] for one in hook.told] == ["began"]


def test_of_what_began_and_ended_in_silence_nobody_hears(
    telling: Celeriac, hook: Hook, rows: Rows, database: Database
) -> None:
    with database.transaction() as connection:
        silences.silence(connection, "dead_letters", "plain Celery", by="ann", seconds=600)
    rows(LETTER)
    looked(telling, rows)
    rows("DELETE FROM dead_letters")
    looked(telling, rows)
    assert hook.told == []


def test_a_mail_is_sent_once_at_either_end(app: Celeriac, rows: Rows) -> None:
    with sandbox.start() as outside:
        found = outside.environ()
        app.settings = replace(
            app.settings, alert_mail=f"smtp://{found['SMTP_HOST']}:{found['SMTP_PORT']}",
            alert_mail_from="celeriac@shop.example", alert_mail_to="ops@shop.example, ann@shop.example",
        )  # fmt: skip
        rows(LETTER)
        for _ in range(2):
            looked(app, rows)
        rows("DELETE FROM dead_letters")
        looked(app, rows)
        began, ended = outside.mailbox.messages
    assert began.recipients == ("ops@shop.example", "ann@shop.example")
    assert (began.subject, ended.subject) == (
        "[warn] dead_letters plain Celery fires", "[warn] dead_letters plain Celery is over"
    )  # fmt: skip
    assert "plain Celery: messages that are no task: 1, more than 0" in began.text
    assert began.message_id == "<celeriac-alert-1@shop.example>"


def test_neither_channel_tells_a_secret_of_what_fails(telling: Celeriac, hook: Hook, rows: Rows) -> None:
    """An alert quotes the error of a role that fails now, which quotes the secret in all spellings."""

    @telling.task(role="login", sensitive=("password",), shared=False, max_retries=0)
    def login(password: str) -> None:
        raise ValueError(f"{password}: {SAID}")

    telling.register_roles()
    live_worker(rows, queues='["login"]', concurrency=4)
    finished(rows, "login", n=2_500, ago=6)
    with sandbox.start() as outside:
        found = outside.environ()
        telling.settings = replace(
            telling.settings, alert_mail=f"smtp://{found['SMTP_HOST']}:{found['SMTP_PORT']}",
            alert_mail_from="celeriac@shop.example", alert_mail_to="ops@shop.example",
        )  # fmt: skip
        with testing.mode("manual", app=telling):
            for _ in range(40):
                login.delay(SECRET)
            testing.drain(raising=False, app=telling)
        rows("UPDATE minutes_until SET until = date_trunc('minute', now())")
        looked(telling, rows)
        mails = [f"{mail.subject}\n{mail.text}" for mail in outside.mailbox.messages]
    assert [one["name"] for one in hook.told] == ["fails_now"]
    assert len(mails) == 1
    told = json.dumps(hook.told, ensure_ascii=False) + mails[0]
    assert "ValueError" in told
    assert not is_told(told)
