"""What was released stays as it is: databases have run it. A change of the schema is a migration of its own."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from celeriac.store import migrate

VERSIONS = Path(migrate.__file__).parent / "migrations" / "versions"

#: The file, and its SHA-256, since 0.1.0. `routines` are not among them: each `migrate` applies them anew.
RELEASED = {
    "0001_operations.sql": "7fb2c70a9cd477e87b83b94610b8ebf6239be17ad16277763b628b6e4d240e7d",
    "0001_roles.sql": "423668508ae2a76fca36dc513e31a1cc65c51423ebdb9357b6bedf506a0b9a85",
    "0001_rooms.py": "7b6b3757027c99363a1d4274cc7a9cf8debb2192d505fc1260626f9588144a2a",
    "0001_rooms.sql": "d1b431ef6b9518d7463f8c295819c07a783f618ecd6ebaf332f1b1fdc514f3bc",
    "0001_schedules.sql": "522ac71210d23fc32332f491a4cbe97272482ed3c187afc383687bdb0dd0eab1",
}


@pytest.mark.parametrize("name", RELEASED)
def test_a_released_migration_is_never_changed(name: str) -> None:
    digest = hashlib.sha256((VERSIONS / name).read_bytes()).hexdigest()
    assert digest == RELEASED[name], f"{name} was released: say what changes in the next migration"
