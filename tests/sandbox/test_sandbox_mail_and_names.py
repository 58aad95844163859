"""The mail server keeps what it accepts; the name server answers as one would."""

from __future__ import annotations

import smtplib
import socket
from email.message import EmailMessage

import dns.message
import dns.query
import dns.rcode
import dns.rdatatype
import httpx
import pytest

import sandbox


def message(to: str, number: int = 1) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "a@example.com", to, "Grüße"
    mail["Message-ID"] = f"<{number}@example.com>"
    mail.set_content("Körper")
    return mail


def ask(outside: sandbox.Sandbox, name: str, kind: str = "CNAME") -> dns.message.Message:
    host, port = outside.dns
    return dns.query.udp(dns.message.make_query(name, kind), host, port=port, timeout=10)


def test_messages_are_kept_in_order_and_listed(outside: sandbox.Sandbox, api: httpx.Client) -> None:
    with smtplib.SMTP(*outside.smtp, timeout=10) as server:
        for number in (1, 2):
            server.send_message(message("b@example.com", number))
    listed = api.get("/_sandbox/mail").json()
    assert [mail["message_id"] for mail in listed] == ["<1@example.com>", "<2@example.com>"]
    assert listed[0] == {
        "sender": "a@example.com",
        "recipients": ["b@example.com"],
        "message_id": "<1@example.com>",
        "subject": "Grüße",
        "text": "Körper\n",
    }


@pytest.mark.parametrize(("to", "code"), [("refused@example.com", 550), ("later@example.com", 451)])
def test_some_recipients_are_refused(outside: sandbox.Sandbox, to: str, code: int) -> None:
    with smtplib.SMTP(*outside.smtp, timeout=10) as server:
        with pytest.raises(smtplib.SMTPRecipientsRefused) as refused:
            server.send_message(message(to))
        assert refused.value.recipients[to][0] == code
    assert outside.mailbox.messages == []


def test_a_cname_is_answered_whatever_type_is_asked(outside: sandbox.Sandbox, api: httpx.Client) -> None:
    api.put("/_sandbox/names", json={"www.Joes.example.": "s.multiscreensite.com"})
    for kind in ("CNAME", "A"):
        answer = ask(outside, "WWW.joes.example", kind)
        assert answer.rcode() == dns.rcode.NOERROR
        assert answer.answer[0][0].to_text() == "s.multiscreensite.com."


def test_unknown_bare_and_failing_names_have_their_own_codes(outside: sandbox.Sandbox) -> None:
    outside.names.update({"bare.example": None, "gone.example": "a.example"})
    outside.names.remove("gone.example")
    codes = {name: ask(outside, f"{name}.example") for name in ("unknown", "gone", "bare", "servfail")}
    assert {name: dns.rcode.to_text(answer.rcode()) for name, answer in codes.items()} == {
        "unknown": "NXDOMAIN",
        "gone": "NXDOMAIN",
        "bare": "NOERROR",
        "servfail": "SERVFAIL",
    }
    assert not any(answer.answer for answer in codes.values())


def test_a_packet_that_is_no_question_is_ignored(outside: sandbox.Sandbox) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b"hello", outside.dns)
    assert ask(outside, "unknown.example").rcode() == dns.rcode.NXDOMAIN


def test_a_table_that_cannot_be_is_refused(api: httpx.Client) -> None:
    assert api.put("/_sandbox/names", json={"www.example.com": 5}).status_code == 400
    assert api.put("/_sandbox/names", json=["www.example.com"]).status_code == 400
    assert api.get("/_sandbox/names").json() == {}
