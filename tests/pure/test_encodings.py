"""The ways a secret comes into texts, each with what makes it so; the page on secrets claims these and no more."""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import re
import shlex
import textwrap
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from email.utils import format_datetime
from html.entities import html5
from itertools import product
from typing import Any
from unicodedata import normalize
from urllib.parse import quote, quote_plus, urlencode

import httpx
import pytest
from pydantic import BaseModel, ValidationError
from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError

from celeriac.store.encoding import encoded
from celeriac.store.redact import HIDDEN, Secrets
from celeriac.store.sensitive import Sensitive

Way = Callable[[str], str]

SECRETS = {
    "short": "hunter22", "letters": "kanarienvögel", "Cyrillic": "пароль-от-всего", "emoji": "4-😀-words-😀",
    "signs": "p@ss wörd/9+x=\"it's\"~&<ü>", "long": "\n".join(f"line {n} of a \"känguru's\" \\key" for n in range(20)),
}  # fmt: skip


@dataclass
class Login:
    password: str


class Typed(BaseModel):
    password: int


def raised(secret: str) -> str:
    try:
        raise ValueError(f"no login with {secret!r}")
    except ValueError:
        return traceback.format_exc()


def refused_by_pydantic(secret: str) -> str:
    with pytest.raises(ValidationError) as refused:
        Typed(password=secret)  # type: ignore[arg-type]
    return str(refused.value)


def refused_by_sqlalchemy(secret: str) -> str:
    return str(DBAPIError.instance("SELECT :p", {"p": secret}, ValueError("no"), ValueError))


def as_csv(secret: str) -> str:
    written = io.StringIO()
    csv.writer(written).writerow(["ann", secret])
    return written.getvalue()


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


#: HTML's names of the characters that have one.
NAMES = {character: name for name, character in sorted(html5.items()) if name.endswith(";") and len(character) == 1}


def small(secret: str) -> str:
    return re.sub("%..", lambda found: found[0].lower(), quote(secret, safe=""))


WAYS: dict[str, Way] = {
    "as it is": str,
    "repr": repr,
    "ascii": ascii,
    "repr of a repr": lambda s: repr(repr(s)),
    "JSON": json.dumps,
    "JSON with its letters": lambda s: json.dumps(s, ensure_ascii=False),
    "JSON in JSON in JSON": lambda s: json.dumps(json.dumps(json.dumps(s))),
    "repr of JSON": lambda s: repr(json.dumps({"password": s})),
    "JSON in capitals": lambda s: re.sub(r"u[0-9a-f]{4}", lambda c: f"u{c[0][1:].upper()}", json.dumps(s)),
    "repr of bytes": lambda s: repr(s.encode()),
    "repr of JSON's bytes": lambda s: repr(json.dumps([s], ensure_ascii=False).encode()),
    "repr of a dataclass": lambda s: repr(Login(s)),
    "octal": lambda s: "".join(chr(b) if b < 128 else f"\\{b:03o}" for b in s.encode()),
    "capitals": lambda s: s.encode().upper().decode(),
    "blanks around it": lambda s: f"   {s}\n\n",
    "padded": lambda s: f"{s!r:>80}",
    "stripped": lambda s: f"it is  {s}  ".strip(),
    "line by line": lambda s: "\n  | ".join(s.splitlines()),
    "without blanks": lambda s: "".join(s.split()),
    "percent": quote,
    "percent, all of it": lambda s: quote(s, safe=""),
    "percent in small letters": small,
    "percent as JavaScript has it": lambda s: quote(s, safe="!'()*~"),
    "percent of latin-1": lambda s: quote(s.encode("latin-1", "backslashreplace"), safe=""),
    "percent twice": lambda s: quote(quote(s, safe=""), safe=""),
    "percent three times": lambda s: quote(quote(quote(s))),
    "plus": quote_plus,
    "a form": lambda s: urlencode({"user": "ann", "password": s, "n": 1}),
    "a URL": lambda s: str(httpx.URL("https://shop.example/", params={"password": s})),
    "the login of a URL": lambda s: URL.create("postgresql", "ann", s, "db").render_as_string(hide_password=False),
    "base64": b64,
    "base64 for URLs": lambda s: base64.urlsafe_b64encode(s.encode()).decode(),
    "base64 in a URL": lambda s: quote(b64(s), safe=""),
    "Basic auth of a": lambda s: f"Basic {b64(f'a:{s}')}",
    "Basic auth of al": lambda s: f"Basic {b64(f'al:{s}')}",
    "Basic auth of ann": lambda s: f"Basic {b64(f'ann:{s}')}",
    "base64 of what it stands in": lambda s: b64(f'{{"password": "{s}"}}'),
    "hexadecimal": lambda s: s.encode().hex(),
    "hexadecimal in capitals": lambda s: s.encode().hex().upper(),
    "bytea": lambda s: f"\\x{s.encode().hex()}",
    "percent as JavaScript had it": lambda s: "".join(f"%u{ord(c):04X}" if ord(c) < 0x10000 else c for c in s),
    "code points as JavaScript has them": lambda s: "".join(f"\\u{{{ord(c):x}}}" for c in s),
    "HTML in numbers of nothing else": lambda s: "".join(f"&#{ord(c)}" for c in s),
    "HTML by names": lambda s: "".join(f"&{NAMES[c]}" if c in NAMES else c for c in s),
    "HTML": html.escape,
    "HTML twice": lambda s: html.escape(html.escape(s)),
    "HTML in numbers": lambda s: s.encode("ascii", "xmlcharrefreplace").decode(),
    "CSV": as_csv,
    "SQL": lambda s: "'" + s.replace("'", "''") + "'",
    "SQL with backslashes": lambda s: "E'" + s.replace("\\", "\\\\").replace("'", "\\'") + "'",
    "a shell's": shlex.quote,
    "a traceback": raised,
    "SQLAlchemy's parameters": refused_by_sqlalchemy,
    "pydantic's input": refused_by_pydantic,
}  # fmt: skip


#: Ways that leave letters and digits as they are, and other signs beside them; or of these alone.
BY_LETTERS: dict[str, Way] = {
    "hexadecimal pairs": lambda s: s.encode().hex(":"),
    "a dump": lambda s: s.encode().hex(" ", 2),
    "base64 in lines": lambda s: "\n".join(textwrap.wrap(b64(s), 10)),
    "repr of base64 in lines": lambda s: repr(base64.encodebytes(3 * s.encode())),
    "a slug": lambda s: re.sub(r"\W+", "-", s).lower(),
    "other blanks and dashes": lambda s: s.replace(" ", "\u00a0").replace("-", "\u2011"),
    "two blanks": lambda s: s.replace(" ", "  "),
    "lines for blanks": lambda s: s.replace(" ", "\\n    "),
    "wrapped": lambda s: "\n    ".join(textwrap.wrap(s, 8)),
    "letter by letter": lambda s: str(list(s)),
    "in two parts": lambda s: f"{s[:6]!r} + {s[6:]!r}",
}  # fmt: skip


def letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text).lower()


def windows(text: str) -> set[str]:
    """Five characters in a row, whatever their digits."""
    alike = re.sub("[0-9]", "0", text).replace("=", "").replace("%0D", "")
    return {alike[at : at + 5] for at in range(len(alike) - 4)}


def told(way: Way, secret: str) -> str:
    return f"It said: {way(secret)} and that was all"


def test_there_are_sixty() -> None:
    assert len(WAYS) + len(BY_LETTERS) >= 60


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("way", WAYS)
def test_it_is_hidden(way: str, secret: str) -> None:
    value = SECRETS[secret]
    shown = Secrets([value]).without(told(WAYS[way], value))
    around = windows(told(WAYS[way], "~" * len(value))) | windows(" ... (0 characters truncated) ... ")
    assert HIDDEN in shown
    # Up to four characters of base64 belong to what stands beside it as well.
    assert not [part for part in re.split(f"[^•]{{0,4}}{HIDDEN}[^•]{{0,4}}", shown) if windows(part) - around]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("way", BY_LETTERS)
def test_its_letters_are_hidden_whatever_stands_between_them(way: str, secret: str) -> None:
    value = SECRETS[secret]
    text = told(BY_LETTERS[way], value)
    shown = Secrets([value]).without(text)
    assert HIDDEN in shown
    given = letters(BY_LETTERS[way](value))
    # Up to six letters of base64 belong to what stands beside it as well.
    assert not [at for at in range(len(given) - 7) if given[at : at + 8] in letters(shown)]


@pytest.mark.parametrize(
    "secret", [*SECRETS.values(), "Ἀχιλλεύς-ΟΔΥΣΣΕΎΣ", "İstanbul'da-1453", "ﬁnance-key-42", "한국어비밀번호"]
)
@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_a_letter_is_one_in_whichever_form_and_capitals(form: str, secret: str) -> None:
    value = "".join(c for c in secret if len(c.upper()) == 1)
    written = normalize(form, value)  # type: ignore[arg-type]
    ways = (written, written.upper(), written.lower(), written.title())
    for given, written in product((value, normalize("NFD", value)), ways):
        shown = Secrets([given]).without(f"It said: {written} and that was all")
        assert re.fullmatch(f"It said: (?:\\W|[xu\\d])*{HIDDEN}(?:\\W|{HIDDEN})* and that was all", shown), shown


@pytest.mark.parametrize("secret", ["hunter22", "correct-horse-battery-staple"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_two_bytes_a_letter_are_a_letter(encoding: str, secret: str) -> None:
    assert hidden_letters(Secrets([secret]).without(repr(secret.encode(encoding)))) <= {*"bxfe0"}


def hidden_letters(shown: str) -> set[str]:
    return {*letters(shown)}


BORN, MET = date(1990, 5, 17), datetime(1990, 5, 17, 10, 30, 15, tzinfo=UTC)
ID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")

WRITTEN = ("17.05.1990", "17.5.1990", "05/17/1990", "17 May 1990", "May 17, 1990", "May 17th, 1990", "1990/05/17")

VALUES: list[tuple[Any, list[str]]] = [
    (4_711_000, ["4711000", "4,711,000", "4.711.000", "4 711 000", "4_711_000", "4'711'000", "4\u202f711\u202f000"]),
    (50_000.0, ["50000.0", "50000", "50,000", "50.000,00", "50 000"]),
    (1234.5, ["1234.5", "1,234.50", "1.234,5", "1 234,5"]),
    (Decimal("98765.40"), ["98765.4", "98,765.4", "98765.40", "98.765,40", "Decimal('98765.40')"]),
    ("4111111111111111", ["4111 1111 1111 1111", "4111-1111-1111-1111", "4111.1111.1111.1111", *(
        joint.join(["4111"] * 1 + ["1111"] * 3)
        for joint in ("\n", "\t", "\u00a0", "–", "\u2011", ";", "|", "  ", " - ", "', '", "%20", "&nbsp;")
    )]),
    ("4111 1111 1111 1111", ["4111111111111111", "4111-1111-1111-1111"]),
    ("+49 170 1234567", ["+491701234567", "0049 170 1234567", "+49 (170) 123-4567"]),
    ("DE89 3704 0044 0532 0130 00", [
        "DE89370400440532013000", "DE89-3704-0044-0532-0130-00", "DE89\u00a03704\u00a00044\u00a00532\u00a00130\u00a000",
    ]),
    ("DE89370400440532013000", ["DE89 3704 0044 0532 0130 00", "DE89-3704-0044-0532-0130-00"]),
    *((when, [
        "1990-05-17", "17.05.1990", "17.5.1990", "5/17/1990", "05/17/1990", "17/05/90", "05/17/90", "19900517",
        "1990, 5, 17", repr(BORN), "17 May 1990", "May 17, 1990", "17-May-1990", f"{BORN:%d %B %Y}", f"{BORN}",
        f"{MET}", repr(MET), format_datetime(MET), "17-MAY-90", "17 May 90", "900517", "17.5.90", "May 17th, 1990",
        "17th of May 1990", "1990-May-17", "1990/05/17", "17\\/05\\/1990", "17%2F05%2F1990", "17–05–1990",
        "datetime.date(year=1990, month=5, day=17)", '{"year": 1990, "month": 5, "day": 17}',
    ]) for when in (BORN, BORN.isoformat(), MET, MET.isoformat(), str(MET), *WRITTEN)),
    (MET, [MET.ctime()]),
    (MET, [MET.isoformat(), repr(MET.isoformat()), quote(str(MET))]),
    *((one, [
        str(ID), str(ID).replace("-", " "), ID.hex, repr(ID), ID.hex.upper(), ID.urn,
    ]) for one in (ID, str(ID), ID.hex)),
    (b"\xff\xfesecret\x00", [repr(b"\xff\xfesecret\x00"), base64.b64encode(b"\xff\xfesecret\x00").decode()]),
    (b"only bytes", ["only bytes", "b'only bytes'", b"only bytes".hex()]),
]  # fmt: skip


@pytest.mark.parametrize(("value", "written"), [(value, text) for value, texts in VALUES for text in texts])
def test_a_number_or_a_date_is_hidden_however_it_is_written(value: Any, written: str) -> None:
    """As a row has it, with the types of kombu's notation."""
    row = encoded({"user": "ann", "secret": [value]}, 1e6)
    shown = Sensitive(frozenset({"secret"})).values([], row).without(f"it was {written}")
    assert HIDDEN in shown
    assert sum(c.isdigit() for c in shown) <= len("1030150000"), shown
    assert "1990" not in shown
    assert "secret" not in shown
