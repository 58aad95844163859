"""The folders of the embedded stack."""

import hashlib
import os
import stat
from pathlib import Path

from celeriac.local.account import Account
from celeriac.local.errors import LocalStackError

# Maximum bytes of the folder's path: a socket's path may have 108 on Linux and 104 on macOS, its own name included.
LONGEST_SOCKET_FOLDER = 80
ROOTS_DATA = Path("/var/tmp/celeriac")


def choose_data_dir(wanted: Path | None) -> Path:
    """Return `wanted`, else CELERIAC_DATA_DIR, else `.celeriac` here; for root, a folder that `nobody` can enter."""
    chosen = wanted or os.environ.get("CELERIAC_DATA_DIR")
    if chosen:
        return Path(chosen).expanduser().resolve()
    if os.geteuid() != 0:
        return Path.cwd().resolve() / ".celeriac"
    make_trusted_folder(ROOTS_DATA)
    return ROOTS_DATA / short_hash(Path.cwd().resolve())


def make_data_dir(data_dir: Path) -> None:
    try:
        data_dir.mkdir(mode=0o755 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LocalStackError(
            f"Cannot make the data directory {data_dir} ({error}): set CELERIAC_DATA_DIR to a folder you own."
        ) from error


def socket_folder(wanted: Path, account: Account) -> Path:
    """Return `wanted`, or a folder with a short path if that one is too long or closed to `account`.

    The short path ignores TMPDIR, because every process has to find the same folder.
    """
    short = len(os.fsencode(wanted)) <= LONGEST_SOCKET_FOLDER
    if short and account.can_enter(wanted.parent):
        return wanted
    return _stand_ins() / short_hash(wanted)


def make_socket_folder(folder: Path, account: Account) -> None:
    if folder.parent == _stand_ins():
        make_trusted_folder(folder.parent)
    account.make_folder(folder)


def make_trusted_folder(folder: Path) -> None:
    """Make `folder` in a world-writable one. Raises LocalStackError if somebody else has made it first."""
    if not folder.exists():
        folder.mkdir(exist_ok=True)
        folder.chmod(0o711)
    check_trusted(folder)


def check_trusted(folder: Path) -> None:
    status = folder.lstat()
    trusted = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
    if not trusted:
        raise LocalStackError(
            f"{folder} is not a folder that only you can write to: somebody else may have put it there. "
            "Look at it and remove it, or set DATABASE_URL and REDIS_URL to servers of your own."
        )


def short_hash(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]


def _stand_ins() -> Path:
    return Path(f"/tmp/celeriac-{os.geteuid()}")
