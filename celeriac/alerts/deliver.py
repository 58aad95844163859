"""Delivery: a webhook and a mail, each once as an alert begins and once as it ends.

Messages to send are rows, written in the alert's own transaction. A thread sends them one by one, so that no check
waits for a receiver. A refused message is sent again after a later check, each time after twice the delay, for a day;
meanwhile other alerts are sent. Only a process that dies between the sending and its commit causes a message to be sent
twice, under the same id.
"""

from __future__ import annotations

import atexit
import http.client
import json
import logging
import smtplib
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from email.message import EmailMessage
from email.utils import formatdate
from functools import partial
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from sqlalchemy import text

from celeriac.alerts.record import unflushed
from celeriac.alerts.rules import runbook
from celeriac.settings import Settings
from celeriac.store.connections import Database
from celeriac.store.failures import is_gone

logger = logging.getLogger(__name__)

#: Maximum seconds for connecting, and for the sending after it.
LIMIT = 10.0

#: The first delay (seconds) before a refused message is sent again; how often that delay is doubled; the number of
#: refused messages after which a channel is skipped until the next check. INVARIANT: a sender has ended within `REST`.
REST, DOUBLINGS, FAILURES = 4 * LIMIT, 7, 3

# INVARIANT: an alert's oldest message goes first, its beginning before its end; its taker has it until the delay ends.
TAKE = text("""
UPDATE celeriac.alert_deliveries SET taken_at = clock_timestamp(), tries = tries + 1
WHERE id = (
    SELECT id FROM celeriac.alert_deliveries d
    WHERE channel = :channel
        AND (taken_at IS NULL OR taken_at < clock_timestamp()
            - :rest * power(2, least(tries - 1, :doublings)) * interval '1 second')
        AND NOT EXISTS (
            SELECT FROM celeriac.alert_deliveries first
            WHERE first.channel = d.channel AND first.id < d.id
                AND first.message ->> 'name' = d.message ->> 'name'
                AND first.message ->> 'subject' = d.message ->> 'subject')
    ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, message, tries
""")

DONE = text("DELETE FROM celeriac.alert_deliveries WHERE id = :id")

GIVE_UP = text("""
DELETE FROM celeriac.alert_deliveries WHERE at < statement_timestamp() - interval '1 day'
RETURNING channel, message ->> 'name' AS name, message ->> 'subject' AS subject
""")

Message = Mapping[str, Any]

T = TypeVar("T")

_sending = threading.Lock()
_sender: threading.Thread | None = None


class NotTaken(Exception):
    """The webhook or the mail server refused the message."""


def channels(settings: Settings) -> list[str]:
    """Return the channels that are configured."""
    return [name for name, setting in (("webhook", settings.alert_webhook), ("mail", settings.alert_mail)) if setting]


def start(database: Database, settings: Settings) -> threading.Thread | None:
    """Send pending messages in a thread; None while one does so already."""
    global _sender
    if not _sending.acquire(blocking=False):
        return None
    thread = threading.Thread(
        target=_send_and_release, args=(database, settings), name="celeriac-deliveries", daemon=True
    )
    try:
        thread.start()
    except BaseException:
        _sending.release()
        raise
    _sender = thread
    return thread


@atexit.register
def _finish() -> None:
    """Wait for the sending thread as the process ends, as `celeriac sweep` does: as long as one message may take."""
    if _sender is not None:
        _sender.join(2 * LIMIT)


def _send_and_release(database: Database, settings: Settings) -> None:
    try:
        for channel in channels(settings):
            _guarded(partial(_send_all, database, settings, channel))
        _guarded(partial(_give_up, database))
    finally:
        _sending.release()


def _guarded(act: Callable[[], None]) -> None:
    """Run a channel; an error of it does not stop the others."""
    try:
        act()
    except Exception as error:
        logger.log(logging.WARNING if is_gone(error) else logging.ERROR, "Alerts are sent later: %s", error)


def _send_all(database: Database, settings: Settings, channel: str) -> None:
    failures = 0
    while failures < FAILURES and (was_taken := _send_next(database, settings, channel)) is not None:
        failures += not was_taken


def _send_next(database: Database, settings: Settings, channel: str) -> bool | None:
    """Send the next message and return whether it was taken; None if none is to be sent now."""
    with unflushed(database) as connection:
        asked = {"channel": channel, "rest": REST, "doublings": DOUBLINGS}
        row = connection.execute(TAKE, asked).one_or_none()
    if row is None:
        return None
    try:
        SEND[channel](settings, row.message | {"id": row.id, "runbook": runbook(row.message["name"])})
    except Exception as error:
        # The part of the address after the host may be a secret.
        expected = isinstance(error, OSError | http.client.HTTPException | smtplib.SMTPException | NotTaken)
        level = logging.WARNING if expected else logging.ERROR
        logger.log(level, "The %s did not take alert %s (try %d): %s", channel, row.message["name"], row.tries, error)
        return False
    with unflushed(database) as connection:
        connection.execute(DONE, {"id": row.id})
    return True


def _give_up(database: Database) -> None:
    with unflushed(database) as connection:
        for row in connection.execute(GIVE_UP):
            logger.error("The %s was not told of alert %s: %s, for a day", row.channel, row.name, row.subject)


def post(settings: Settings, message: Message) -> None:
    """POST the message as JSON; any status of success is accepted. Follows no redirect."""
    url = urlsplit(str(settings.alert_webhook))
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    with closing(kind(str(url.hostname), url.port, timeout=LIMIT)) as connection:
        _in_time(connection.connect, lambda: connection.sock)
        with _within(lambda: connection.sock):
            headers = {"Content-Type": "application/json", "User-Agent": "celeriac"} | _login(url)
            target = f"{url.path or '/'}{f'?{url.query}' if url.query else ''}"
            connection.request("POST", target, json.dumps(message), headers)
            status = connection.getresponse().status
    if not 200 <= status < 300:
        raise NotTaken(f"{url.hostname} answered {status}")


def _login(url: SplitResult) -> dict[str, str]:
    if url.username is None:
        return {}
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def mail(settings: Settings, message: Message) -> None:
    """Send one mail to all recipients. A repetition has the same Message-ID."""
    url = urlsplit(str(settings.alert_mail))
    host, port = str(url.hostname), url.port or {"smtp": 25, "smtps": 465}.get(url.scheme, 587)
    with closing(_server(url.scheme, host)) as server:
        code, said = _in_time(lambda: server.connect(host, port), lambda: server.sock)
        if code != 220:
            raise smtplib.SMTPConnectError(code, said)
        with _within(lambda: server.sock):
            if url.scheme == "smtp+starttls":
                server.starttls(context=ssl.create_default_context())
            if url.username:
                server.login(unquote(url.username), unquote(url.password or ""))
            server.send_message(_mail(settings, message))
            with suppress(OSError):
                server.quit()


def _server(scheme: str, host: str) -> smtplib.SMTP:
    """Return a server that is not connected yet."""
    of_tls = partial(smtplib.SMTP_SSL, context=ssl.create_default_context())
    server = of_tls(timeout=LIMIT) if scheme == "smtps" else smtplib.SMTP(timeout=LIMIT)
    vars(server)["_host"] = host  # the name the certificate has to have; `connect` does not set it
    return server


def _mail(settings: Settings, message: Message) -> EmailMessage:
    made = EmailMessage()
    made["From"], made["To"] = settings.alert_mail_from, settings.alert_mail_to
    is_over = message["event"] == "ended"
    subject = f"[{message['severity']}] {message['name']} {message['subject']} {'is over' if is_over else 'fires'}"
    made["Subject"] = " ".join(subject.split())
    made["Message-ID"] = f"<celeriac-alert-{message['id']}@{str(settings.alert_mail_from).rpartition('@')[2]}>"
    made["Date"], made["Auto-Submitted"] = formatdate(), "auto-generated"
    lines = [f"{message['subject']}: {message['says']}", f"since {message['since']}"]
    lines += [f"over after {message['seconds']:.0f} s"] if is_over else []
    lines += [f"what to do: {message['runbook']}"] if message["runbook"] else []
    made.set_content("\n".join(lines) + "\n")
    return made


def _in_time(connect: Callable[[], T], sock: Callable[[], socket.socket | None]) -> T:
    """Connect within `LIMIT`, or else send nothing, because another process may be sending the message by then."""
    with _within(sock) as over:
        connected = connect()
    if over.is_set():
        raise NotTaken(f"it took more than {LIMIT:g} s to connect")
    return connected


@contextmanager
def _within(sock: Callable[[], socket.socket | None]) -> Iterator[threading.Event]:
    """Shut that socket after `LIMIT`, even if the other side still answers slowly, and set the yielded event."""
    over = threading.Event()

    def end() -> None:
        over.set()
        with suppress(OSError):
            if (open_one := sock()) is not None:
                open_one.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(LIMIT, end)
    timer.daemon = True
    timer.start()
    try:
        yield over
    finally:
        timer.cancel()


SEND: Mapping[str, Callable[[Settings, Message], None]] = {"webhook": post, "mail": mail}
