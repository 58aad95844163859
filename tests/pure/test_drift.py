"""What a migration makes is read in it, in whatever form it is written."""

from __future__ import annotations

from pathlib import Path

from celeriac.store.drift import expected

FIRST = """
-- A table; with a semicolon.
CREATE TABLE celeriac.shelves (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- in metres
    width numeric(6, 2) NOT NULL DEFAULT 1,
    kind text DEFAULT 'a, b' NOT NULL,
    old text,
    CONSTRAINT shelves_kind_known CHECK (kind IN ('a, b', 'c'))
);
CREATE INDEX shelves_by_kind ON celeriac.shelves (kind);
CREATE TABLE celeriac.gone (id bigint);
CREATE INDEX gone_by_id ON celeriac.gone (id);
"""

SECOND = '''
afterwards = (
    "DROP INDEX CONCURRENTLY IF EXISTS celeriac.shelves_by_width",
    "CREATE INDEX CONCURRENTLY shelves_by_width ON celeriac.shelves (width)",
    "ALTER TABLE celeriac.shelves VALIDATE CONSTRAINT shelves_wide",
)

def upgrade() -> None:
    op.execute("ALTER TABLE celeriac.shelves ADD COLUMN depth integer, DROP COLUMN old")
    op.execute("""
        ALTER TABLE celeriac.shelves ADD CONSTRAINT shelves_wide CHECK (width > 0) NOT VALID;
        DROP INDEX celeriac.shelves_by_kind;
        DROP TABLE celeriac.gone;
    """)

def downgrade() -> None:
    op.execute("CREATE TABLE celeriac.gone (id bigint)")
'''


def test_what_migrations_make_is_read_in_them(tmp_path: Path) -> None:
    (tmp_path / "0001_first.sql").write_text(FIRST)
    (tmp_path / "0002_second.py").write_text(SECOND)
    found = {(part.kind, part.name): part.mend for part in expected(tmp_path) if part.mend != "celeriac migrate"}
    assert set(found) == {
        ("table", "shelves"), ("primary key", "shelves"), ("column", "shelves.id"), ("column", "shelves.width"),
        ("column", "shelves.kind"), ("column", "shelves.depth"), ("constraint", "shelves.shelves_kind_known"),
        ("constraint", "shelves.shelves_wide"), ("index", "shelves_by_width"),
    }  # fmt: skip
    assert (
        found["column", "shelves.kind"] == "ALTER TABLE celeriac.shelves ADD COLUMN kind text DEFAULT 'a, b' NOT NULL;"
    )
    assert found["column", "shelves.depth"] == "ALTER TABLE celeriac.shelves ADD COLUMN depth integer;"
    assert found["index", "shelves_by_width"] == (
        "CREATE INDEX CONCURRENTLY shelves_by_width ON celeriac.shelves (width);"
    )
