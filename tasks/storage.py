"""Where thumbnails are kept: a folder or any object store fsspec knows.

`THUMBNAILS_URL` says where (`file:///srv/thumbnails`, `s3://bucket/thumbnails`; an object store needs its own package,
S3 the extra `s3`), `THUMBNAILS_PUBLIC_URL` under which address browsers find the same.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tasks.text import without_credentials


def default_folder(environ: Mapping[str, str]) -> str:
    """Beside the embedded servers' data."""
    return (Path(environ.get("CELERIAC_DATA_DIR") or ".celeriac").absolute() / "thumbnails").as_uri()


class Store:
    def __init__(self, url: str, public_url: str = "") -> None:
        from fsspec.core import url_to_fs  # Only where something is stored is it needed.

        self._files, self._root = url_to_fs(url)
        self._public_url = public_url.rstrip("/")

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Store:
        url = environ.get("THUMBNAILS_URL") or default_folder(environ)
        return cls(url, environ.get("THUMBNAILS_PUBLIC_URL", ""))

    def put(self, folder: str, name: str, data: bytes) -> str:
        """The address of the file, which is whole or not there: it gets its name when it is complete.

        No two puts give the same: a file nobody refers to is never referred to again.
        """
        path = f"{folder}/{name}-{uuid.uuid4().hex}.png"
        there, part = f"{self._root}/{path}", f"{self._root}/{folder}/.{uuid.uuid4().hex}.part"
        self._files.makedirs(f"{self._root}/{folder}", exist_ok=True)
        self._files.pipe_file(part, data)
        self._files.mv(part, there)
        return f"{self._public_url}/{path}" if self._public_url else self._address(there)

    def _address(self, path: str) -> str:
        """Without a user and password of THUMBNAILS_URL's: it is shown to whoever sees the site."""
        return without_credentials(str(self._files.unstrip_protocol(path)))

    def folders(self) -> Iterator[str]:
        """Those that something was put into, two levels deep: `instasite/7`."""
        for kind in self._inside("", only_folders=True):
            for site in self._inside(kind, only_folders=True):
                yield f"{kind}/{site}"

    def names(self, folder: str) -> set[str]:
        """Of the files in it, those of a put that broke off among them."""
        return set(self._inside(folder))

    def remove(self, folder: str, names: Iterable[str]) -> None:
        """One that is gone already is as good."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self._files.rm_file(f"{self._root}/{folder}/{name}")

    def _inside(self, folder: str, *, only_folders: bool = False) -> list[str]:
        """As the store has it now, whatever was listed before."""
        there = f"{self._root}/{folder}".rstrip("/")
        self._files.invalidate_cache(there)
        try:
            found = self._files.ls(there, detail=True)
        except FileNotFoundError:
            return []
        is_wanted = "directory" if only_folders else "file"
        return [one["name"].rstrip("/").rpartition("/")[2] for one in found if one["type"] == is_wanted]
