"""A soft limit of open files is raised where a worker's slots need more, and no further."""

from __future__ import annotations

import resource
from collections.abc import Callable

import pytest

from celeriac.run import descriptors
from celeriac.run.places import places
from celeriac.worker import pools

Limits = tuple[int, int]
Allow = Callable[[Limits, int], Limits]


@pytest.fixture
def allow(monkeypatch: pytest.MonkeyPatch) -> Allow:
    """Return what a process with these limits has after it has asked for so many."""

    def ask(limits: Limits, needed: int) -> Limits:
        standing = [limits]
        monkeypatch.setattr(resource, "getrlimit", lambda _: standing[-1])
        monkeypatch.setattr(resource, "setrlimit", lambda _, both: standing.append(both))
        raised = descriptors.allow(needed)
        assert raised == (None if standing == [limits] else (limits[0], standing[-1][0]))
        return standing[-1]

    return ask


def test_what_is_enough_stays(allow: Allow) -> None:
    """`select()` in a handler takes none above 1,023."""
    assert allow((1024, 1_048_576), 656) == (1024, 1_048_576)
    assert allow((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 2256) == (resource.RLIM_INFINITY,) * 2


def test_it_has_what_it_needs_and_the_hard_limit_allows(allow: Allow) -> None:
    assert allow((1024, 1_048_576), 2256) == (2256, 1_048_576)
    assert allow((1024, resource.RLIM_INFINITY), 2256) == (2256, resource.RLIM_INFINITY)
    assert allow((1024, 2048), 2256) == (2048, 2048)


def test_only_slots_that_share_a_process_need_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "kind", None)
    assert pools.files(1000) == 0
    monkeypatch.setattr(places, "kind", pools.KINDS["threads"][0])
    assert pools.files(200) <= 1024 < pools.files(1000)
