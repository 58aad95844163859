"""docs/scopes.md: which operation which scope opens, and what is hidden from `view`, out of the API's own document.

`python -m tests.api.scopes` writes the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from celeriac.api.gate import OPEN
from celeriac.insights.tasks.veil import CALLS, ERROR_TEXTS
from celeriac.operate.tokens import CALLS as SEES_CALLS
from celeriac.operate.tokens import IMPLIED, READ
from tests.api.described import document
from tests.processes import ROOT

PAGE = ROOT / "docs" / "scopes.md"

HEAD = """# Scopes, operation by operation

Each operation of the [HTTP API](api.md), and the scopes of a token that open it. Of what `view` opens, the last
column has the fields that are hidden from it: arguments, results, progress, headers and lines of logs wholly, of what
an error says all but its kind; the same names at any depth of free objects, such as `before` and `after` of the audit
trail, an attempt's `why` and a dead letter's `reason`. The other scopes that read see them, without what a role calls
[sensitive](dashboard.md#secrets).

`python -m tests.api.scopes` writes this page from the code; a test calls each operation with a token of each scope.

"""

Operation = tuple[str, str, str]


def operations() -> list[Operation]:
    """Method, path and the scope it needs."""
    return [
        (method.upper(), path, operation["security"][0]["token"][0])
        for path, methods in sorted(document()["paths"].items())
        for method, operation in methods.items()
        if path not in OPEN
    ]


def opens(scope: str, needed: str) -> bool:
    return needed in IMPLIED[scope]


def hidden(method: str, path: str) -> list[str]:
    """The fields of its answer that a token which sees no calls gets without their values."""
    answers = document()["paths"][path][method.lower()]["responses"]
    contents = (of for status, of in answers.items() if status.startswith("2"))
    return sorted({name for one in contents for name in _fields(one, ()) if name in CALLS | ERROR_TEXTS})


def _fields(schema: Any, above: tuple[str, ...]) -> Iterator[str]:
    if isinstance(schema, dict):
        name = schema.get("$ref", "").rpartition("/")[2]
        if name and name not in above:
            yield from _fields(document()["components"]["schemas"][name], (*above, name))
        yield from schema.get("properties", {})
        for key, part in schema.items():
            if key not in ("example", "examples"):
                yield from _fields(part, above)
    elif isinstance(schema, list):
        for part in schema:
            yield from _fields(part, above)


def page() -> str:
    header = f"| operation | {' | '.join(f'`{scope}`' for scope in IMPLIED)} | hidden from `view` |"
    rows = [header, "| --- |" + " :-: |" * len(IMPLIED) + " --- |"]
    for method, path, needed in operations():
        marks = " | ".join("•" if opens(scope, needed) else "" for scope in IMPLIED)
        fields = ", ".join(f"`{name}`" for name in hidden(method, path)) if needed == READ else ""
        rows.append(f"| `{method} {path}` | {marks} | {fields} |")
    assert SEES_CALLS not in IMPLIED["view"]
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
