"""The system user that runs the servers, and folders that this user can enter."""

import os
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celeriac.local.errors import LocalStackError

#: The user id of servers that root starts. No distribution assigns this number, so no other process has it. A server of
#: `nobody` would be at the mercy of every other process of that user.
SERVERS = 65523


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int

    @classmethod
    def for_servers(cls) -> "Account":
        """Return the caller's account; for root the account SERVERS, as Postgres refuses to run as root."""
        return cls(SERVERS, SERVERS) if os.geteuid() == 0 else cls(os.geteuid(), os.getegid())

    @classmethod
    def with_name(cls) -> "Account":
        """Return an account with a name, for programs that look it up: the caller's, or `nobody` for root.

        Raises LocalStackError where there is no such user.
        """
        if os.geteuid() != 0:
            return cls(os.geteuid(), os.getegid())
        try:
            nobody = pwd.getpwnam("nobody")
        except KeyError:
            raise LocalStackError(
                "Root makes Postgres' data folder as the user nobody, who is missing here: add that user, or set "
                "DATABASE_URL and REDIS_URL to servers of your own."
            ) from None
        return cls(nobody.pw_uid, nobody.pw_gid)

    @property
    def is_caller(self) -> bool:
        return self.uid == os.geteuid()

    def spawn_options(self) -> dict[str, Any]:
        if self.is_caller:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def make_folder(self, folder: Path) -> None:
        """Make `folder` if it is missing, owned by this account and closed to everybody else."""
        folder.mkdir(parents=True, exist_ok=True)
        self.take(folder)
        folder.chmod(0o700)

    def take(self, folder: Path) -> None:
        """Make this account the owner of `folder` and everything in it."""
        if folder.stat().st_uid == self.uid:
            return
        for path in [*folder.rglob("*"), folder]:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def make_hall(self, folder: Path) -> None:
        """Make `folder` if it is missing, owned by the caller, and let this account pass through it."""
        if not folder.exists():
            folder.mkdir(parents=True)
            folder.chmod(0o700 if self.is_caller else 0o711)

    def can_enter(self, folder: Path) -> bool:
        return self.is_caller or all(self._has_bit(path, 0o1) for path in [folder, *folder.parents])

    def can_run(self, program: Path) -> bool:
        return self.can_enter(program.parent) and (self.is_caller or self._has_bit(program, 0o5))

    def _has_bit(self, path: Path, bits: int) -> bool:
        status = path.stat()
        shift = 6 if status.st_uid == self.uid else 3 if status.st_gid == self.gid else 0
        return (status.st_mode >> shift) & bits == bits
