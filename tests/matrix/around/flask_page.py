"""The application of the page about Flask prices what it is asked for, in tasks with the application's context."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import processes
from tests.deploy.written import of
from tests.processes import ROOT

BLOCKS = of("docs/flask.md", "python")

#: Of who has the application's client: it asks until it is told the price.
CLIENT = """
from shop import flask_app
from tests.processes import until

client = flask_app.test_client()
asked = client.post("/price/1250")
assert asked.status_code == 202, asked.text
address = f"/price/{asked.json['id']}"
until(lambda: client.get(address).json["state"] == "SUCCESS", "the price")
print(client.get(address).json["price"])
"""


def test_an_order_is_priced_within_the_applications_context(tmp_path: Path, database_url: str, redis_url: str) -> None:
    (block,) = BLOCKS
    (tmp_path / "shop.py").write_text(block.text)
    environ = {
        **os.environ, "DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": f"{ROOT}:{tmp_path}",
    }  # fmt: skip
    app, log = "shop:celery_app", tmp_path / "worker.log"
    with processes.worker(app, database_url, redis_url, log, "-c", "1", "-Q", "shop", environ=environ):
        done = subprocess.run([sys.executable, "-c", CLIENT], env=environ, capture_output=True, text=True, timeout=90)
        assert done.stdout == "12.50 EUR\n", done.stderr
