"""The doctor over HTTP: what is wrong with the system, and what cures it, as `celeriac doctor` shows."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field

from celeriac.api.app import Counted
from celeriac.api.callers import Reader
from celeriac.api.system import AnswerModel

router = APIRouter(prefix="/api", tags=["system"])


class Finding(AnswerModel):
    check: str = Field(examples=["roles"])
    ok: bool = Field(examples=[False])
    says: str = Field(examples=["crawl has 12 tasks that may start, and no worker takes its queue crawl"])
    cure: str | None = Field(
        description="a command or a statement, if there is one; null: nothing is wrong",
        examples=["run `celery -A tasks worker -Q crawl`"],
    )
    runbook: str | None = Field(
        description="the page about it, by its path in the repository and in the documentation; null: none",
        examples=["docs/runbooks/no_worker.md"],
    )
    about: str = Field(description="the question it helps to answer", examples=["tasks are not processed"])


class Examination(AnswerModel):
    ok: bool = Field(description="nothing is wrong", examples=[False])
    findings: list[Finding] = Field(
        description="one for each check; checks of parts that this system does not have are left out"
    )


@router.get("/doctor")
async def get_doctor(_: Reader, figures: Counted) -> Examination:
    """Examine the running system, with a cure for each problem; as this server sees it. Nothing is changed."""
    findings = await figures.doctor()
    return Examination.model_validate(
        {"ok": all(one.ok for one in findings), "findings": findings}, from_attributes=True
    )
