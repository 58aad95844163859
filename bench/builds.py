"""`python -m bench.builds`: InstaSites a minute, with passes of 60 each 30 seconds and builds of about 45 seconds at
Duda's stand-in. Run it as it is, and with `QM_INSTASITES_WINDOW=120`.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.orm import Session

from bench.size import sized
from demo.stage import Setting, Stage, stage, worker_and_beat
from sandbox import TEMPLATES, Plan

BATCH, INTERVAL = sized(60, 4), sized(30, 1)
WINDOW = int(os.environ.get("QM_INSTASITES_WINDOW") or BATCH)
SITES, ACCOUNTS = sized(300, 12), 10

#: How long Duda takes for each of a build's four requests (milliseconds).
LATENCY = (sized(10_500, 100), sized(12_500, 200))

#: From the middle of the first batch's publications to that of the last one's: how long a build takes is in no figure.
PACE = text("""
SELECT count(*), CAST(extract(epoch FROM
    percentile_disc(0.5) WITHIN GROUP (ORDER BY published_at) FILTER (WHERE n > :sites - :batch)
    - percentile_disc(0.5) WITHIN GROUP (ORDER BY published_at) FILTER (WHERE n <= :batch)) AS double precision)
FROM (
    SELECT published_at, row_number() OVER (ORDER BY published_at) AS n FROM instasites WHERE published_at IS NOT NULL
) AS published
""")


def main() -> None:
    environ = {
        "QM_INSTASITES_INTERVAL_SECONDS": str(INTERVAL),
        "QM_INSTASITES_BATCH_SIZE": str(BATCH),
        "QM_INSTASITES_WINDOW": str(WINDOW),
        "DUDA_REQUESTS_PER_SECOND": "1000",
    }
    with tempfile.TemporaryDirectory() as logs, stage(Setting(environ, Plan(LATENCY)), Path(logs)) as on:
        seconds = built(on)
    print(f"window {WINDOW}: {(SITES - BATCH) / seconds * 60:.0f} builds a minute")


def built(on: Stage) -> float:
    """Seconds from the first batch to the last."""
    os.environ.update(on.environ)
    from celeriac.store.migrate import migrate
    from tasks.app import app  # only now: it reads the environment

    migrate(app.database.engine, app.migrations)
    enqueue()
    with worker_and_beat(on, "-P", "threads", "-c", str(WINDOW), "-Q", "instasite_build"):
        while True:
            with app.database.statement() as connection:
                published, seconds = connection.execute(PACE, {"sites": SITES, "batch": BATCH}).one()
            if published == SITES:
                break
            time.sleep(0.2)
    app.publisher.close()
    app.database.dispose()
    return float(seconds)


def enqueue() -> None:
    """Sites of several accounts, as many of each."""
    from models import Account, Instasite, Template
    from tasks.app import app
    from tasks.instasites import build

    template = Template(name="Bakery", duda_template_id=TEMPLATES[0])
    with Session(app.database.engine) as session, session.begin():
        accounts = [Account(name=str(n), email=f"{n}@example.com") for n in range(ACCOUNTS)]
        about = {"business_data": {"name": "Bakery"}}
        sites = [
            Instasite(account=accounts[n % ACCOUNTS], template=template, customisations=about) for n in range(SITES)
        ]
        session.add_all([*accounts, *sites])
        session.flush()
        calls = [{"instasite_id": site.id, "account_id": site.account.id} for site in sites]
        build.bulk(calls, session=session)


if __name__ == "__main__":
    main()
