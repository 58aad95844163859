"""The mail that a site is ready, against the sandbox's SMTP server."""

from __future__ import annotations

import os
import socket
from dataclasses import replace

import pytest

import sandbox
from celeriac import ConfigurationError
from tasks.mail import MailRefused, MailSettings, MailUnavailable, send_site_ready

URL = "https://www.joes.example/"
ID = "<instasite-0197a1c2-5f0e-7cc1-9a63-6d2f4b8e1c55@sites.example.com>"
ENVIRON = {"SMTP_HOST": "mail.example", "MAIL_FROM": "sites@example.com"}


@pytest.fixture
def settings(outside: sandbox.Sandbox) -> MailSettings:
    return MailSettings.from_env(outside.environ())


def test_the_mail_arrives_once_with_its_message_id(outside: sandbox.Sandbox, settings: MailSettings) -> None:
    send_site_ready(settings, "joe@joes.example", URL, ID)
    (message,) = outside.mailbox.messages
    assert (message.sender, message.recipients) == (settings.sender, ("joe@joes.example",))
    assert message.message_id == ID
    assert URL in message.text


def test_a_repetition_has_the_same_message_id(outside: sandbox.Sandbox, settings: MailSettings) -> None:
    for _ in range(2):
        send_site_ready(settings, "joe@joes.example", URL, ID)
    assert [message.message_id for message in outside.mailbox.messages] == [ID, ID]


@pytest.mark.parametrize(
    "to",
    [
        "joe@joes.example\r\nBcc: all@example.com",
        "joe@joes.example\nX-Header: 1",
        "joe@joes.example, all@example.com",
        "friends: joe@joes.example, all@example.com;",
        "joe",
        "",
    ],
)
def test_a_recipient_that_is_more_than_one_address_is_refused(
    outside: sandbox.Sandbox, settings: MailSettings, to: str
) -> None:
    with pytest.raises(ValueError, match=r"cannot stand in the header To|must be one address"):
        send_site_ready(settings, to, URL, ID)
    assert outside.mailbox.messages == []


@pytest.mark.parametrize("message_id", ["", "id", "<a@b>\r\nBcc: all@example.com", "<a b@c>", "<a@b><c@d>"])
def test_a_message_id_that_is_none_is_refused(settings: MailSettings, message_id: str) -> None:
    with pytest.raises(ValueError, match="Message-ID"):
        send_site_ready(settings, "joe@joes.example", URL, message_id)


@pytest.mark.parametrize("url", ["", "javascript:alert(1)", "https://a.example/\n\nSend money to …"])
def test_a_site_url_that_is_none_is_refused(settings: MailSettings, url: str) -> None:
    with pytest.raises(ValueError, match="site URL"):
        send_site_ready(settings, "joe@joes.example", url, ID)


def test_a_recipient_refused_for_good_is_permanent(settings: MailSettings) -> None:
    with pytest.raises(MailRefused, match="550"):
        send_site_ready(settings, "refused@joes.example", URL, ID)


def test_a_recipient_refused_for_now_is_worth_a_retry(settings: MailSettings) -> None:
    with pytest.raises(MailUnavailable, match="451"):
        send_site_ready(settings, "later@joes.example", URL, ID)


def test_a_server_that_is_not_there_or_silent_is_worth_a_retry(settings: MailSettings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        elsewhere = replace(settings, port=silent.getsockname()[1], timeout_seconds=0.3)
        with pytest.raises(MailUnavailable, match="timed out"):
            send_site_ready(elsewhere, "joe@joes.example", URL, ID)
    with pytest.raises(MailUnavailable, match="ConnectionRefused"):
        send_site_ready(elsewhere, "joe@joes.example", URL, ID)


def test_nothing_is_sent_in_clear_when_tls_is_demanded_and_not_offered(
    outside: sandbox.Sandbox, settings: MailSettings
) -> None:
    with pytest.raises(MailRefused, match="STARTTLS"):
        send_site_ready(replace(settings, starttls=True), "joe@joes.example", URL, ID)
    assert outside.mailbox.messages == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SMTP_HOST", ""),
        ("MAIL_FROM", "nobody"),
        ("SMTP_PORT", "mail"),
        ("SMTP_PORT", "70000"),
        ("SMTP_STARTTLS", "perhaps"),
        ("SMTP_TIMEOUT_SECONDS", "0"),
        ("SMTP_PASSWORD", "hunter2"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=name) as wrong:
        MailSettings.from_env(ENVIRON | {name: value})
    assert "hunter2" not in str(wrong.value)


def test_a_password_goes_only_through_tls_and_is_not_shown() -> None:
    login = ENVIRON | {"SMTP_USER": "joe", "SMTP_PASSWORD": "hunter2"}
    with pytest.raises(ConfigurationError, match="in clear"):
        MailSettings.from_env(login)
    settings = MailSettings.from_env(login | {"SMTP_STARTTLS": "true"})
    assert settings.port == 587
    assert "hunter2" not in repr(settings)


def test_the_environment_of_the_process_is_the_default(outside: sandbox.Sandbox) -> None:
    assert os.environ["SMTP_PORT"] == str(outside.smtp[1])
    assert MailSettings.from_env().port == outside.smtp[1]
