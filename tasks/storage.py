"""Where thumbnails are kept: a folder or any object store fsspec knows.

`THUMBNAILS_URL` says where (`file:///srv/thumbnails`, `s3://bucket/thumbnails`; an object store needs its own package,
such as s3fs), `THUMBNAILS_PUBLIC_URL` under which address browsers find the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path


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

        The name tells the content, so that repeating a put changes nothing.
        """
        path = f"{folder}/{name}-{sha256(data).hexdigest()[:16]}.png"
        there, part = f"{self._root}/{path}", f"{self._root}/{folder}/.{uuid.uuid4().hex}.part"
        self._files.makedirs(f"{self._root}/{folder}", exist_ok=True)
        self._files.pipe_file(part, data)
        self._files.mv(part, there)
        return f"{self._public_url}/{path}" if self._public_url else str(self._files.unstrip_protocol(there))
