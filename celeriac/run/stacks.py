"""Celery's stacks (`self.request`, `current_task`) of coroutines, which share a thread: each has its own entries."""

from __future__ import annotations

from contextvars import Context, ContextVar, copy_context
from typing import Any

from celery._state import _task_stack

#: The owner of the entries of Celery's stacks (`self.request`, `current_task`) in this context; None: its thread.
_whose: ContextVar[Any] = ContextVar("celeriac stacks", default=None)


def tell_apart(stack: Any) -> None:
    """Make the stack's entries belong to the context's owner if there is one, else to a thread or greenlet."""
    usual = getattr(stack, "__ident_func__", None)
    if usual is not None and not hasattr(usual, "usual"):

        def whose() -> Any:
            owner = _whose.get()
            return usual() if owner is None else owner

        whose.usual = usual  # type: ignore[attr-defined]
        stack.__ident_func__ = whose


def begin_apart(owner: object) -> None:
    """Give Celery's stacks in this asyncio task to this owner."""
    _whose.set(owner)


def owner_here() -> object:
    """Return the owner of the entries of Celery's stacks here: this context's, or this thread or greenlet."""
    whose = getattr(_task_stack, "__ident_func__", None)  # Celery's fast stacks have none
    return whose() if whose else None


def begin_stack(stack: Any, owner: object, entry: Any) -> None:
    """Push onto a stack that is empty for this owner; `push` would first look for the owner's entries, which costs
    more.
    """
    local = getattr(stack, "_local", None)
    if local is None:  # Celery's fast stacks
        stack.push(entry)
    else:
        local.__storage__[owner] = {"stack": [entry]}


def end_stack(stack: Any, owner: object) -> None:
    """Drop the owner's entries."""
    local = getattr(stack, "_local", None)
    if local is None:
        stack.pop()
    else:
        local.__storage__.pop(owner, None)


def context_of_thread() -> Context:
    """Return a copy of this context, for another thread, that sees the same entries."""
    context = copy_context()
    context.run(_whose.set, _task_stack.__ident_func__())
    return context
