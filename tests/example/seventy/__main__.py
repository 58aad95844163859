"""Take the steps, and print the outcome of each as a line of JSON."""

from __future__ import annotations

import json

from tests.example.seventy import calls as calls
from tests.example.seventy import operations as operations
from tests.example.seventy.step import STEPS

for name, act in STEPS.items():
    try:
        value = act()
    except Exception as error:
        value = f"raised {error!r}"
    print(json.dumps([name, value], default=repr), flush=True)
