"""Each process of the engine writes a record as one: no tenant's text begins a line of the log, or moves a cursor."""

from __future__ import annotations

import os
import sys

import pytest

from tests import processes
from tests.processes import ROOT

#: An account, as an alert names it: with ends of lines, and what clears a terminal.
SAY = """
import logging
HOSTILE = "acme\\n2026-01-01 INFO audit: root: resume\\r\\nas root\\x1b[2J\\u2028ok"
def say(*_):
    for name in ("celeriac.alerts.review", "uvicorn.error", "shop"):
        logging.getLogger(name).warning("Alert %s", HOSTILE)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.getLogger("celeriac.api.gate").exception("An error of %s", HOSTILE)
"""

#: How a process comes to its loggers; an application may set up the log itself, as it is imported.
SERVES = """
from celeriac import Celeriac
from celeriac.api import server
server.run = say
server.serve(Celeriac("shop"), "127.0.0.1", 0)
"""
COMMANDS = """
import click
from celeriac.cli import main
@main.command()
@click.pass_obj
def tell(find):
    find()
    say()
main(["-A", "tests.end_to_end.shop", "tell"])
"""
WITHIN = """
import click
from types import SimpleNamespace
from celeriac import Celeriac
from celeriac.cli import within_celery
@within_celery.command()
@click.pass_obj
def tell(find):
    find()
    say()
within_celery(["tell"], obj=SimpleNamespace(app=Celeriac("shop")))
"""
ITS_OWN = "import logging; logging.basicConfig(format='%(levelname)s %(message)s')\n"


@pytest.mark.parametrize("before", ["", ITS_OWN], ids=["ours", "the application's"])
@pytest.mark.parametrize("process", [SERVES, COMMANDS, WITHIN], ids=["serve", "command", "within celery"])
def test_no_text_of_a_tenant_begins_a_line(database_url: str, redis_url: str, process: str, before: str) -> None:
    servers = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
    done = processes.finished([sys.executable, "-c", before + SAY + process], {**os.environ, **servers})
    lines = done.stderr.splitlines()
    assert sum("Alert acme" in line for line in lines) == 3, done.stderr
    assert not [line for line in lines if line.startswith(("2026", "as root"))]
    assert "An error of acme" in done.stderr
    assert not {*done.stderr} & {"\x1b", "\r", "\u2028"}
