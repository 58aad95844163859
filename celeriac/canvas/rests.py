"""Rests: a row carries the next few links of its chain, and one entry that names where those behind them are stored.

Otherwise each row of a long chain would carry all that follow it, and a link would cost more the longer its chain is.
The entry is an ordinary signature to Celery, which may copy it, add options to it and put links before it. Celery lists
a chain's last link first, so the entry is the first of the list. It has what the last link says of the chord or group
that its result goes to.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard
from uuid import uuid4

from sqlalchemy import Connection, text

from celeriac.canvas.parts import goal_of
from celeriac.enqueue.rows import Rest
from celeriac.errors import CeleriacError

logger = logging.getLogger(__name__)

#: Names the entry. There is no task of this name.
ENTRY = "celeriac.rest_of_chain"

#: Number of links that a row carries and a block has; a chain of at most `WHOLE` links is carried as a whole.
CARRIED, WHOLE = 8, 12

#: Options of the chain's last link that say where the chain's result goes, and which the entry has as well.
_GOAL = ("chord", "group_id", "group_index")

#: Options of the entry that are its own: any other was given to all that follows.
_OWN = (*_GOAL, "task_id", "root_id", "parent_id", "reply_to", "link_error")


class LinksGone(CeleriacError):
    """Stored links of a chain are not there any more: somebody has deleted them."""


BEGIN = text("SELECT celeriac.begin_rests()")

BLOCKS = text("""
SELECT place, links FROM celeriac.chain_rests WHERE chain = CAST(:chain AS uuid) AND place >= :place ORDER BY place
""")

BLOCK = text("SELECT links FROM celeriac.chain_rests WHERE chain = CAST(:chain AS uuid) AND place = :place")


def may_begin(connection: Connection) -> bool:
    """Return whether links may be stored apart from their rows: whether no older release is left, which would lose
    them.
    """
    return bool(connection.execute(BEGIN).scalar_one())


def is_long(chain: Sequence[Any] | None) -> bool:
    return chain is not None and len(chain) > WHOLE


def cut(chain: Sequence[Any], workflow: str) -> tuple[list[Any], Rest]:
    """Divide a long chain (JSON): return what the next task's row carries, and the rest in blocks."""
    carried, behind = list(chain[-CARRIED:]), chain[:-CARRIED]
    blocks = [list(behind[max(0, end - CARRIED) : end]) for end in range(len(behind), 0, -CARRIED)]
    rest = Rest(str(uuid4()), workflow, blocks)
    last = chain[0]
    entry: dict[str, Any] = {
        "task": ENTRY, "args": [], "kwargs": {"chain": rest.chain, "place": 0, "blocks": len(blocks)},
        "options": {"task_id": (last.get("options") or {}).get("task_id")} | _goal(last), "subtask_type": None,
        "immutable": True,
    }  # fmt: skip
    return [entry, *carried], rest


def is_entry(link: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(link, Mapping) and link.get("task") == ENTRY


def is_used_up(chain: Sequence[Any] | None) -> bool:
    """Return whether a row that carries these links needs the next block, for its next task's row to carry some."""
    return chain is not None and 0 < len(chain) <= 2 and is_entry(chain[0])


def continued(connection: Connection, chain: Sequence[Any]) -> list[Any]:
    """Return the chain with enough links for the next row. Raises LinksGone if they are not there any more."""
    links = list(chain)
    while is_used_up(links):
        links = [*following(connection, links[0]), *links[1:]]
    return links


def whole(connection: Connection, chain: Sequence[Any] | None) -> list[Any]:
    """Return all links of the chain that are there. If its last is not, an entry stands for it, with its id and with
    the chord or group that its result goes to.
    """
    links: list[Any] = []
    ahead = list(chain or ())[::-1]
    while ahead:
        link = ahead.pop()
        if is_entry(link):
            stored, has_last = _stored(connection, link)
            links += [] if has_last else [link]
            ahead += stored[::-1]
        else:
            links.append(link)
    return links


def _stored(connection: Connection, entry: Mapping[str, Any]) -> tuple[list[Any], bool]:
    """Return the links of those of the entry's blocks that are there, and whether the last block is."""
    named, options = entry["kwargs"], entry.get("options") or {}
    wanted = {"chain": named["chain"], "place": named["place"]}
    blocks = {row.place: row.links for row in connection.execute(BLOCKS, wanted)}
    if gone := named["blocks"] - named["place"] - len(blocks):
        logger.error("Of chain %s %d blocks of links are not there any more", named["chain"], gone)
    links = [_with(link, options) for place in reversed(blocks) for link in blocks[place]]
    if has_last := named["blocks"] - 1 in blocks:
        links[0] = _ending(links[0], options)
    return links, has_last


def following(connection: Connection, entry: Mapping[str, Any]) -> list[Any]:
    """Return the block that the entry names, and an entry for those behind it, if there are any.

    What was given to the entry as an option since it was made is given to all of them. Raises LinksGone.
    """
    named, options = entry["kwargs"], entry.get("options") or {}
    links = connection.execute(BLOCK, {"chain": named["chain"], "place": named["place"]}).scalar_one_or_none()
    if links is None:
        raise LinksGone(f"the links behind block {named['place']} of chain {named['chain']} are not there any more")
    links = [_with(link, options) for link in links]
    place = named["place"] + 1
    if place < named["blocks"]:
        return [{**entry, "kwargs": {**named, "place": place}}, *links]
    links[0] = _ending(links[0], options)
    return links


def _ending(last: Mapping[str, Any], options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the chain's last link with what its entry's options say of the chord or group that its result goes to."""
    said = {name: options[name] for name in _GOAL if name in options}
    return last if said == _goal(last) else {**last, "options": {**(last.get("options") or {}), **said}}


def _goal(last: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an entry that say where the result of the chain's last link goes."""
    if (goal := goal_of(last)) is not None:
        return {"chord": goal.body, "group_id": goal.group, "group_index": goal.place}
    options = last.get("options") or {}
    return {name: options[name] for name in _GOAL if name in options}


def _with(link: Mapping[str, Any], options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the link with what was given to its chain's entry, as Celery gives it to each link of a chain."""
    more = {name: value for name, value in options.items() if name not in _OWN}
    listed = options.get("link_error") or []
    errbacks = listed if isinstance(listed, list | tuple) else [listed]
    if more:
        link = {**link, "options": {**(link.get("options") or {}), **more}}
    return _on_error(link, errbacks) if errbacks else link


def _on_error(link: Mapping[str, Any], errbacks: Sequence[Any]) -> Mapping[str, Any]:
    """Return the signature with these errbacks, once each: a chord has them at its body, a group at each task."""
    kwargs = link.get("kwargs") or {}
    match link.get("subtask_type"):
        case "chord":
            return {**link, "kwargs": {**kwargs, "body": _on_error(kwargs["body"], errbacks)}}
        case "group":
            tasks = [_on_error(task, errbacks) for task in kwargs.get("tasks") or ()]
            return {**link, "kwargs": {**kwargs, "tasks": tasks}}
    options = link.get("options") or {}
    before = options.get("link_error") or []
    all_of_them = list(before) if isinstance(before, list | tuple) else [before]
    all_of_them += [errback for errback in errbacks if errback not in all_of_them]
    return {**link, "options": {**options, "link_error": all_of_them}}
