"""A secret in every spelling that the page on secrets claims, and whether a text tells it."""

from __future__ import annotations

import json

from tests.pure.test_encodings import WAYS

#: Quotes and letters that reprs and JSON write in their own ways.
CANARY = "kanarienvögel"
SECRET = f"spelled-{CANARY}-4711"

#: A text with all of them, a line each that has no line end of its own.
SAID = "\n".join(f"{name}: {way(SECRET)}" for name, way in WAYS.items())

FORMS = {
    CANARY, json.dumps(CANARY)[1:-1], ascii(CANARY)[1:-1], "kanarienv", "KANARIENV",
    *(spelled for way in WAYS.values() for spelled in [way(SECRET).strip()] if "\n" not in spelled),
}  # fmt: skip


def is_told(text: str) -> bool:
    return any(form in text for form in FORMS)
