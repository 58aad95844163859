"""An address that cannot be read, as its password has a special character, is refused in a line without any of it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import pytest

from celeriac import Celeriac, ConfigurationError, Settings
from celeriac.settings import QUOTING
from celeriac.store.addresses import postgres
from celeriac.store.connections import Database
from tests.conftest import ROOT
from tests.pure.configured import REDIS, Make

#: Between two parts that nothing else in a message has.
SPECIAL = [
    *"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ \té", "@@", "/@", "?@", "#@", ":@", "@/", "@:", "@?", "@[", "@[x]", "@&",
    "@?x=", "@/x?", "::", "://", ";redis://", "%zz", "\udcff", "\u2100", "\n", "\x01",
]  # fmt: skip

PASSWORDS = [
    f"{first}{special}{last}" for special in SPECIAL for first, last in (("Qx7", "Zy9"), ("71", "92"), ("", ""))
]

AROUND = (("Qx7", "Zy9"), ("71", "92"), ("", ""))

FORMS = {
    "postgresql": "postgresql://u:{}@db.invalid:5432/name",
    "redis": "redis://:{}@redis.invalid:6379/3",
    "rediss": "rediss://u:{}@redis.invalid/3?ssl_cert_reqs=required",
    "sentinels": "sentinel://:{}@one.invalid:26379/3;sentinel://two.invalid",
    "second": "sentinel://one.invalid:26379;sentinel://:{}@two.invalid/3",
}


def of_database(address: str) -> Mapping[str, Any]:
    database = Database(address)
    database.dispose()
    _, options = database.engine.dialect.create_connect_args(database.engine.url)
    return {"password": options.get("password"), "host": options["host"]}


def of_redis(address: str, **named: Any) -> Mapping[str, Any]:
    settings = Settings(redis_url=address, redis_master="m" if address.startswith("sentinel") else None)
    connection = Celeriac("shop", settings=settings, set_as_current=False, **named).connection_for_write()
    return {"password": connection.password, "host": connection.hostname}


#: The variable that is named, and how it is read.
READ: Mapping[str, tuple[str, Callable[[str], Mapping[str, Any]]]] = {
    "postgresql": ("DATABASE_URL", of_database),
    **{form: ("REDIS_URL", of_redis) for form in FORMS if form != "postgresql"},
}


def read(form: str, password: str) -> Mapping[str, Any] | ConfigurationError:
    try:
        return READ[form][1](FORMS[form].format(password))
    except ConfigurationError as error:
        return error


@pytest.mark.parametrize("special", SPECIAL, ids=ascii)
@pytest.mark.parametrize("form", FORMS)
def test_a_password_is_read_as_it_is_or_refused_without_a_character_of_it(form: str, special: str) -> None:
    for first, last in AROUND:
        password = f"{first}{special}{last}"
        parts = read(form, password)
        if isinstance(parts, ConfigurationError):
            refused = str(parts)
            right = r"( cannot be read: give |=…: the broker is one |: with Sentinels )"
            assert re.match(READ[form][0] + right, refused)
            assert "%40" in refused
            assert QUOTING in refused
            assert "\n" not in refused
            assert not any(word in refused for word in ("Qx7", "Zy9", "71", "92"))
            assert parts.__context__ is None
        else:
            assert parts["host"].endswith(".invalid")
            if "%" not in password:
                assert parts["password"] == (password or None)


@pytest.mark.parametrize("special", [special for special in SPECIAL if special.isprintable()], ids=ascii)
@pytest.mark.parametrize("form", FORMS)
def test_written_as_the_line_says_it_is_read(form: str, special: str) -> None:
    for first, last in AROUND:
        parts = read(form, quote(f"{first}{special}{last}", ""))
        assert not isinstance(parts, ConfigurationError)
        assert parts["password"] == f"{first}{special}{last}"


def test_the_command_that_is_named_prints_what_to_write() -> None:
    done = subprocess.run(QUOTING, shell=True, input="p@ss:w/d#1\n", capture_output=True, text=True, check=True)
    assert done.stdout == "p%40ss%3Aw%2Fd%231\n"
    assert f"`{QUOTING}` prints" in (ROOT / "docs/servers.md").read_text()


@pytest.mark.parametrize("name", ["broker_url", "broker_read_url", "broker_write_url"])
def test_what_celerys_configuration_names_is_read_alike(make: Make, name: str) -> None:
    app = make(redis_url=None)
    app.conf.update({name: "redis://:Qx7/Zy9#rd@redis.invalid"})
    for act in (lambda: app.redis_url, app.connection_for_read, app.connection_for_write):
        with pytest.raises(ConfigurationError, match=rf"^{name} cannot be read: give redis://") as refused:
            act()
        assert "Qx7" not in str(refused.value)


def test_an_environments_broker_as_well(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://:Qx7/Zy9#rd@redis.invalid")
    with pytest.raises(ConfigurationError, match=r"^CELERY_BROKER_URL cannot be read: give redis://"):
        _ = make(redis_url=REDIS).redis_url


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://db.invalid:54x2/name", "postgresql://u:p@one.invalid:1,two.invalid:2/name",
        "postgresql://u:p@db.invalid/name?nonsense=1", "postgresql://u:p@db.invalid/na@me", "postgresql://u:%00@h/name",
    ],
)  # fmt: skip
def test_what_else_libpq_would_not_understand(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^DIRECT_URL cannot be read: give postgresql://"):
        postgres(address, "DIRECT_URL")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql:///name?host=/run/postgresql", "postgresql:///name?host=one:1&host=two:2", "postgresql://[::1]:5432/name",
        "postgresql://u@h/name?application_name=me@here&sslmode=require", "postgresql://u:p@one,two/name",
        "postgresql+psycopg2://u:a?b/c#d@h/name", "postgres://u@h/name",
        "postgresql://shop:secret@/shop?host=one.internal,two.internal&port=5432,5432&target_session_attrs=read-write",
    ],
)  # fmt: skip
def test_what_could_be_read_before_still_is(address: str) -> None:
    assert postgres(address).drivername == "postgresql+psycopg2"


@pytest.mark.parametrize("password", ["Qx7/Zy9", "12/Zy9", "Qx7#Zy9", "Qx7?Zy9", "Qx7@Zy9/1", "Qx7[Zy9"])
def test_a_mail_servers_address_is_no_exception(password: str) -> None:
    environ = {
        "CELERIAC_ALERT_MAIL": f"smtps://u:{password}@mail.invalid:25", "CELERIAC_ALERT_MAIL_FROM": "a@b.c",
        "CELERIAC_ALERT_MAIL_TO": "a@b.c",
    }  # fmt: skip
    with pytest.raises(ConfigurationError, match=r"^CELERIAC_ALERT_MAIL is not usable: .*%40") as refused:
        Settings.from_environ(environ)
    assert "Qx7" not in str(refused.value)
    environ["CELERIAC_ALERT_MAIL"] = f"smtps://u:{quote(password, '')}@mail.invalid:25"
    assert Settings.from_environ(environ).alert_mail


def test_a_password_goes_to_no_mail_server_without_tls() -> None:
    to = {"CELERIAC_ALERT_MAIL_FROM": "a@b.c", "CELERIAC_ALERT_MAIL_TO": "a@b.c"}
    with pytest.raises(ConfigurationError, match=r"without TLS; give smtps://… or smtp\+starttls://…") as refused:
        Settings.from_environ(to | {"CELERIAC_ALERT_MAIL": "smtp://u:kanarienvogel@mail.invalid"})
    assert "kanarienvogel" not in str(refused.value)
    for fine in ("smtp://mail.invalid", "smtp://u:p@localhost", "smtps://u:p@mail.invalid"):
        assert Settings.from_environ(to | {"CELERIAC_ALERT_MAIL": fine}).alert_mail == fine
