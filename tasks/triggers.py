"""`POST /api/trigger/<system>/<job>`: the queue master's manual triggers, only with `QM_HOOKS=true`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from beat import HOOKS
from celeriac.api.app import App
from celeriac.api.callers import Operator
from celeriac.api.fields import Name
from celeriac.api.problems import not_found
from celeriac.api.scheduled_jobs import RunNowResult, result_of
from celeriac.schedules import operate
from celeriac.settings import is_on

router = APIRouter(prefix="/api/trigger", tags=["trigger"])

PathPart = Annotated[Name, Path()]


#: Whether there are any; a value that says neither is refused as the API starts.
ARE_ON = is_on("QM_HOOKS", default=False)


@router.post("/{system}/{job}")
def trigger_hook(system: PathPart, job: PathPart, app: App, caller: Operator) -> RunNowResult:
    """Run the hook's schedule now. 404 for what is no hook, and for all while the hooks are switched off."""
    path = f"{system}/{job}"
    if not ARE_ON:
        raise not_found("trigger here: the hooks are switched off (QM_HOOKS)")
    if path not in HOOKS:
        raise not_found(f"hook {path!r}")
    return result_of(operate.run_now(app, HOOKS[path], by=caller.name))
