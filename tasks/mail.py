"""The mail that tells a customer the site is ready.

    MailError
    ├── MailUnavailable    no connection, timeout, or a 4xx reply: try again later
    └── MailRefused        a 5xx reply, or a server that cannot do what is asked: repeating changes nothing

A mail that failed as MailUnavailable may have been delivered; its Message-ID shows a repetition.
"""

from __future__ import annotations

import contextlib
import os
import re
import smtplib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate

from tasks.environment import positive, require, required, switch, whole

_MESSAGE_ID = re.compile(r"<[^<>@\s]+@[^<>@\s]+>")


class MailError(Exception):
    """The mail was not accepted."""


class MailUnavailable(MailError):
    """Worth a retry with the same Message-ID."""


class MailRefused(MailError):
    """Permanent."""


@dataclass(frozen=True)
class MailSettings:
    """Which SMTP server sends, and as whom.

    sender: the From address. user, password: none means no login. starttls: demand TLS with a certificate
    that is valid for `host`. timeout_seconds: for each step of the dialogue.

    Raises ConfigurationError, naming the environment variable to correct.
    """

    host: str
    sender: str
    port: int = 25
    user: str = ""
    password: str = field(default="", repr=False)
    starttls: bool = False
    timeout_seconds: float = 10.0

    def __post_init__(self) -> None:
        require(bool(self.user) == bool(self.password), "set both SMTP_USER and SMTP_PASSWORD, or neither")
        require(
            self.starttls or not self.password,
            "SMTP_PASSWORD would travel in clear: set SMTP_STARTTLS=true, or unset SMTP_USER too",
        )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> MailSettings:
        """Reads SMTP_* and MAIL_FROM. SMTP_PORT is 587 with SMTP_STARTTLS, else 25."""
        starttls = switch("SMTP_STARTTLS", default=False, environ=environ)
        sender = environ.get("MAIL_FROM", "")
        require("@" in sender, f"MAIL_FROM is {sender!r}: set an address, as sites@example.com")
        return cls(
            host=required("SMTP_HOST", "the mail server's name", environ=environ),
            sender=sender,
            port=whole("SMTP_PORT", 587 if starttls else 25, at_least=1, at_most=65535, environ=environ),
            user=environ.get("SMTP_USER", ""),
            password=environ.get("SMTP_PASSWORD", ""),
            starttls=starttls,
            timeout_seconds=positive("SMTP_TIMEOUT_SECONDS", cls.timeout_seconds, environ=environ),
        )


def send_site_ready(settings: MailSettings, to: str, site_url: str, message_id: str) -> None:
    """Sends one mail: the site at `site_url` is online.

    message_id: the same for each repetition, as `<instasite-17@example.com>`; receivers recognise a second
    copy by it. Raises MailUnavailable, MailRefused, and ValueError for an address, URL or id that cannot
    stand in a mail (more than one recipient and header injection included).
    """
    message = site_ready_message(settings.sender, to, site_url, message_id)
    try:
        _deliver(settings, message)
    except smtplib.SMTPException as error:
        raise _smtp_error(to, error) from error
    except ssl.SSLCertVerificationError as error:
        raise MailRefused(f"{settings.host} has no valid certificate: {error.verify_message}") from error
    except OSError as error:
        raise MailUnavailable(f"{settings.host}:{settings.port}: {type(error).__name__}: {error}") from error


def site_ready_message(sender: str, to: str, site_url: str, message_id: str) -> EmailMessage:
    """The mail as it is sent. Raises ValueError as `send_site_ready`."""
    _require(bool(_MESSAGE_ID.fullmatch(message_id)), f"Message-ID {message_id!r} must look like <1@host>")
    _require(bool(re.fullmatch(r"https?://\S+", site_url)), f"site URL {site_url!r} must look like https://…")
    message = EmailMessage()
    for name, value in (("From", sender), ("To", to), ("Message-ID", message_id)):
        _set_header(message, name, value)
    _require(_is_one_address(message), f"recipient {to!r} must be one address, as owner@example.com")
    message["Subject"] = "Your website is ready"
    message["Date"] = formatdate()
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(f"Good news: your website is online.\n\n{site_url}\n")
    return message


def _set_header(message: EmailMessage, name: str, value: str) -> None:
    try:
        message[name] = value
    except ValueError as error:
        raise ValueError(f"{value!r} cannot stand in the header {name}: {error}") from None


def _is_one_address(message: EmailMessage) -> bool:
    addresses = message["To"].addresses
    return len(addresses) == 1 and bool(addresses[0].username and addresses[0].domain)


def _deliver(settings: MailSettings, message: EmailMessage) -> None:
    with contextlib.closing(smtplib.SMTP(settings.host, settings.port, timeout=settings.timeout_seconds)) as server:
        if settings.starttls:
            server.starttls(context=ssl.create_default_context())
        if settings.password:
            server.login(settings.user, settings.password)
        server.send_message(message)
        with contextlib.suppress(OSError):  # Accepted is accepted, even if the goodbye fails.
            server.quit()


def _smtp_error(to: str, error: smtplib.SMTPException) -> MailError:
    code, text = _reply(error)
    permanent = code >= 500 or isinstance(error, smtplib.SMTPNotSupportedError)
    return (MailRefused if permanent else MailUnavailable)(f"mail to {to}: {text}")


def _reply(error: smtplib.SMTPException) -> tuple[int, str]:
    """The server's reply code (0 without one) and what to say about it; nothing the client sent."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return _shown(*next(iter(error.recipients.values())))
    if isinstance(error, smtplib.SMTPResponseException):
        return _shown(error.smtp_code, error.smtp_error)
    return 0, f"{type(error).__name__}: {error}"


def _shown(code: int, reply: bytes | str) -> tuple[int, str]:
    return code, f"{code} {reply.decode(errors='replace') if isinstance(reply, bytes) else reply}"


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
