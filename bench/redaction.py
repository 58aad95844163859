"""`python -m bench.redaction CHECKOUT`: what hiding secrets costs here and in another checkout, in alternating pairs.

Processor time of a thread, so that what else the machine does counts for little: of a call with three secrets, to read
its arguments as they may be shown, and to hide the secrets in an error message (a row of a page, a settle of a failure)
or in none (a success). Prints microseconds, and the ratio of each pair's medians.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from statistics import median

from bench.size import sized

PAIRS = sized(9, 1)

#: In either checkout: the first form of `values` was a pattern.
MEASURED = """
import itertools, json, time
from statistics import median
from celeriac.store.sensitive import Sensitive

sensitive = Sensitive(frozenset({"password", "card", "token"}), ("store_id", "password"))
ERROR = "HTTPStatusError: 502 Bad Gateway for url https://shop.example/orders/7?card=%d, which was asked twice. " * 3


def call(n):
    "Each call has secrets of its own: a pattern that was made before is of no use."
    return [n, f"correct horse battery {n}"], {"card": 4111111111111111 + n, "order": {"token": f"{n:032x}"}}


def shown(n) -> None:
    sensitive.call(*call(n))


def succeeded(n) -> None:
    sensitive.values(*call(n))


def failed(n) -> None:
    values = sensitive.values(*call(n))
    error = ERROR % (n, n, n)
    values.without(error) if hasattr(values, "without") else values.sub("•••", error)


def quoted(n) -> None:
    "An error message that quotes one of the secrets."
    args, kwargs = call(n)
    values = sensitive.values(args, kwargs)
    error = f"{ERROR % (n, n, n)} signed in with {args[1]!r}"
    values.without(error) if hasattr(values, "without") else values.sub("•••", error)


def microseconds(act, n=200):
    began = time.thread_time()
    for _ in range(n):
        act(next(numbers))
    return (time.thread_time() - began) / n * 1e6


numbers = itertools.count()
acts = (shown, succeeded, failed, quoted)
print(json.dumps({act.__name__: median(microseconds(act) for _ in range(5)) for act in acts}))
"""


def main(other: str) -> None:
    here = os.getcwd()
    of_pairs = []
    for pair in range(PAIRS):
        order = (here, other) if pair % 2 else (other, here)
        took = {checkout: measured(checkout) for checkout in order}
        of_pairs.append((took[other], took[here]))
    for name in of_pairs[0][0]:
        there, now = (median(one[side][name] for one in of_pairs) for side in (0, 1))
        ratio = median(one[1][name] / one[0][name] for one in of_pairs)
        print(f"{name:10} {there:8.1f} µs there, {now:8.1f} µs here: {ratio:.2f} times")


def measured(checkout: str) -> dict[str, float]:
    environ = {**os.environ, "PYTHONPATH": checkout}
    done = subprocess.run([sys.executable, "-c", MEASURED], env=environ, cwd=checkout, capture_output=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main(sys.argv[1])
