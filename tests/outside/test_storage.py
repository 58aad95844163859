"""Files have an address once they are whole, wherever fsspec keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest

from tasks.storage import Store, default_folder
from tasks.thumbnails import listed


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_a_file_is_found_under_its_address(tmp_path: Path, kind: str) -> None:
    root = tmp_path.as_uri() if kind == "file" else "memory://thumbnails"
    address = Store(root).put("instasite/7", "desktop", b"picture")
    assert address.startswith(root.replace("memory://", "memory:///"))
    with fsspec.open(address) as file:
        assert file.read() == b"picture"


def test_no_address_is_given_twice(tmp_path: Path) -> None:
    """A file that nobody refers to any more may be removed at any later time."""
    store = Store(tmp_path.as_uri())
    assert store.put("instasite/7", "desktop", b"picture") != store.put("instasite/7", "desktop", b"picture")
    assert len(store.names("instasite/7")) == 2


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_what_lies_there_is_named_and_removed(tmp_path: Path, kind: str) -> None:
    store = Store(tmp_path.as_uri() if kind == "file" else f"memory://{tmp_path.name}")
    assert (list(store.folders()), store.names("instasite/7")) == ([], set())
    old, new = (store.put("instasite/7", "desktop", picture).rpartition("/")[2] for picture in (b"old", b"new"))
    store.put("agency_website/8", "desktop", b"picture")
    assert sorted(store.folders()) == ["agency_website/8", "instasite/7"]
    assert store.names("instasite/7") == {old, new}
    store.remove("instasite/7", [old, "gone already"])
    assert store.names("instasite/7") == {new}


def test_a_file_whose_writing_broke_off_has_no_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path.as_uri())

    def half(path: str, data: bytes, **_: Any) -> None:
        Path(path).write_bytes(data[:3])
        raise OSError("disk full")

    monkeypatch.setattr(store._files, "pipe_file", half)
    with pytest.raises(OSError, match="disk full"):
        store.put("instasite/7", "desktop", b"picture")
    assert list(tmp_path.rglob("*.png")) == []


def test_a_password_is_in_no_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """THUMBNAILS_URL may have one; whoever sees a site sees the address of its picture."""
    store = Store(tmp_path.as_uri())
    monkeypatch.setattr(store._files, "unstrip_protocol", lambda path: f"sftp://anna:secret@files.example{path}")
    assert store.put("instasite/7", "desktop", b"").startswith("sftp://files.example/")


def test_of_a_folder_that_cannot_be_listed_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The pictures are there and the site refers to them: its build has not failed."""
    store = Store(tmp_path.as_uri())

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("https://anna:secret@files.example/ refuses ListBucket")

    monkeypatch.setattr(store._files, "ls", refuse)
    assert listed(store, "instasite/7") == set()
    (record,) = caplog.records
    assert record.getMessage() == (
        "the pictures in instasite/7 cannot be listed: PermissionError: https://files.example/ refuses ListBucket"
    )


def test_a_public_address_replaces_the_stores_own(tmp_path: Path) -> None:
    environ = {"THUMBNAILS_URL": tmp_path.as_uri(), "THUMBNAILS_PUBLIC_URL": "https://cdn.example/t/"}
    assert Store.from_env(environ).put("instasite/7", "desktop", b"").startswith("https://cdn.example/t/instasite/7/")


def test_without_a_setting_files_are_beside_the_embedded_servers_data() -> None:
    assert default_folder({"CELERIAC_DATA_DIR": "/data"}) == "file:///data/thumbnails"
