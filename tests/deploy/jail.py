"""The rules of a container without an engine: a root of its own that is read only, a small `/tmp`, nobody special.

Linux' own parts of it, as root may have them: a mount namespace, in which only what is named can be seen, and a user
without any capability, who can get none.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from tests.processes import ROOT

#: What docker-compose.yml has to say of a service for the jail to be the same.
RULES = {
    "read_only": True,
    "tmpfs": ["/tmp:size=1g"],
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
}

#: The image's user, who is as much nobody as the one whom the tests' own Postgres lets in through its socket.
USER = 10001

#: As the image says it: its user has no folder, and a browser wants one.
HOME = "/tmp"

#: Where the jail's root is put together: an empty folder of every system, covered in the jail's own view only.
HALL = "/mnt"

_SEEN = ("/usr", "/etc")
_LINKS = tuple(path for path in ("/bin", "/sbin", "/lib", "/lib64") if Path(path).exists())
_SYSTEM = f"{os.defpath}:/usr/sbin:/sbin"
_POWERLESS = ("--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")


@cache
def can_be_had() -> bool:
    """Whether this machine lets us: root on Linux, and no container of its own that forbids it."""
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"):
        return False
    return subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0


def jailed(command: Sequence[str], *, database_url: str = "", volumes: Sequence[str] = ()) -> list[str]:
    """The command that runs it there, as the same process; as it is where there is no jail to be had.

    `volumes`: folders that may be written, empty at first. The network is the machine's.
    """
    if not can_be_had():
        return list(command)
    socket = re.search(r"[?&]host=([^&]*)", database_url)
    sockets = [unquote(socket[1])] if socket else []
    user = os.stat(sockets[0]).st_uid if sockets else USER
    seen = sorted({*_SEEN, str(ROOT), sys.prefix, sys.base_prefix, *sockets})
    lines = [
        "set -eu",
        "mount --make-rprivate /",
        f"mount -t tmpfs -o mode=755,size=4m root {HALL}",
        *(f"cp -P {path} {HALL}{path}" if Path(path).is_symlink() else _bound(path) for path in _LINKS),
        f"mkdir {HALL}/proc {HALL}/dev {HALL}/tmp",
        f"mount --rbind /proc {HALL}/proc",
        f"mount --rbind /dev {HALL}/dev",
        f"mount -t tmpfs -o mode=1777,size=64m shm {HALL}/dev/shm",
        f"mount -t tmpfs -o mode=1777,size=1g,noexec,nosuid,nodev tmp {HALL}/tmp",
        *(_bound(path) for path in seen),
        *(f"mkdir -p {HALL}{path}; mount -t tmpfs -o mode=1777 volume {HALL}{path}" for path in volumes),
        f"mount -o remount,bind,ro {HALL}",
        'cd /; exec "$@"',
    ]
    enter = [str(shutil.which("chroot", path=_SYSTEM)), HALL]
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *_POWERLESS]
    at_home = ["env", "-u", "TMPDIR", f"HOME={HOME}", "sh", "-c", 'cd "$0" && exec "$@"', str(ROOT)]
    return ["unshare", "--mount", "bash", "-c", "\n".join(lines), "jail", *enter, *become, *at_home, *command]


def _bound(path: str) -> str:
    """Seen at its own place, and read only."""
    there = shlex.quote(f"{HALL}{path}")
    return f"mkdir -p {there}; mount -o bind,ro {shlex.quote(path)} {there}"
