"""docs/operations.md: what each surface calls an operation. `python -m tests.operations` writes it.

The rows are written here, permissions are read from the routes; tests/postgres/test_operations.py finds what they lack.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from celeriac.cli import main
from celeriac.dashboard import app as dashboard
from celeriac.dashboard.guard import May
from celeriac.insights.tasks.conditions import CONDITIONS
from celeriac.operate.bulks import MOVES
from tests.api.scopes import operations as of_api
from tests.deploy.written import names
from tests.processes import ROOT

PAGE = ROOT / "docs" / "operations.md"

HEAD = """# Operations, surface by surface

All operations, with their names on each surface. The permission is the scope of a [token](api.md#tokens), for the API
and the dashboard alike; a command (of `celeriac`) needs none but its login to Postgres. The audit trail has an action
and a kind (`retry task`); what only reads leaves no row there. Queries are examples: [SQL](sql.md) lists the columns;
those that write set first how long they may wait for locks. `python -m tests.operations` writes this page; a test fails
where a surface has an operation that is not in it.

"""

#: Before a statement that writes.
LIMIT = "SET lock_timeout = '2s';"

COLUMNS = ("operation", "API", "command", "dashboard", "SQL", "permission", "audit")

#: By section: operation; API; command; dashboard; SQL; audit. Several of one cell are separated by two spaces.
ROWS = """
# Tasks
enqueue; POST /api/tasks; tasks enqueue; POST /enqueue/{role:name}  GET /new-task; SELECT celeriac.enqueue('product_resync', '{"dispensary_id": 7}'); enqueue task
enqueue many; POST /api/tasks/bulk; tasks enqueue; ; INSERT INTO celeriac.worker_tasks (role, kwargs) VALUES ('product_resync', '{"dispensary_id": 7}');
enqueue it once more; ; ; POST /tasks/{task}/duplicate; ; enqueue task
list; GET /api/tasks; tasks list; GET /tasks  GET /tasks/export.{kind}  GET /go; SELECT * FROM celeriac.worker_tasks;
count by status; GET /api/tasks/counts; status; GET /overview  GET /; SELECT status, count(*) FROM celeriac.worker_tasks GROUP BY status;
show one, with its events; GET /api/tasks/{task}  GET /api/tasks/{task}/history; tasks show; GET /tasks/{task}  GET /tasks/{task:name}; SELECT * FROM celeriac.task_events WHERE task = 7;
read its log; GET /api/tasks/{task}/log; tasks log; GET /tasks/{task}; ;
explain why it has not started; GET /api/tasks/{task}/why; why; GET /tasks/{task}; ;
retry; POST /api/tasks/retry; tasks retry; POST /tasks/{task}/retry  POST /tasks/retry  POST /bulk/retry; UPDATE celeriac.worker_tasks SET status = 'pending' WHERE id = 7; retry task  bulk retry bulk
cancel; POST /api/tasks/cancel; tasks cancel; POST /tasks/{task}/cancel  POST /tasks/cancel  POST /bulk/cancel; UPDATE celeriac.worker_tasks SET status = 'cancelled' WHERE id = 7; cancel task  bulk cancel bulk
give another priority; POST /api/tasks/prioritise; tasks prioritise; POST /tasks/{task}/priority  POST /tasks/prioritise  POST /bulk/prioritise; UPDATE celeriac.worker_tasks SET priority = 50 WHERE id = 7; priority task  bulk prioritise bulk
raise its priority; ; ; POST /tasks/{task}/boost  POST /tasks/boost; UPDATE celeriac.worker_tasks SET priority = priority + 20 WHERE id = 7; boost task
make due now; POST /api/tasks/{task}/hasten; tasks hasten; POST /tasks/{task}/now  POST /tasks/hasten; UPDATE celeriac.worker_tasks SET scheduled_for = now() WHERE id = 7; hasten task
change arguments; PUT /api/tasks/{task}/arguments; tasks edit; POST /tasks/{task}/arguments; ; edit task
see how far bulks are; GET /api/bulk  GET /api/bulk/{number}; bulks list  bulks show; GET /bulk  GET /bulk/{number}; SELECT * FROM celeriac.bulk_actions;
count what a filter means; ; tasks retry  tasks cancel; GET /tasks/matching  GET /retry-failures/{fingerprint}; ;
stop a bulk; DELETE /api/bulk/{number}; bulks stop; POST /bulk/{number}/stop; ; stop bulk  end bulk
go on with bulks; ; bulks work; ; ;
# Workflows
list those under way; GET /api/workflows; workflows list; GET /workflows; SELECT workflow, count(*) FROM celeriac.worker_tasks WHERE workflow IS NOT NULL GROUP BY 1;
show one; GET /api/workflows/{workflow}; workflows show; GET /workflows/{workflow:name}; ;
list its parts; GET /api/workflows/{workflow}/tasks; workflows tasks; GET /workflows/{workflow:name}; SELECT * FROM celeriac.worker_tasks WHERE workflow = 'nightly';
cancel one; POST /api/workflows/{workflow}/cancel; workflows cancel; POST /cancel-workflow/{workflow:name}; ; cancel task
# Failures and dead letters
list failures by kind; GET /api/failures; failures list; GET /failures  GET /failures/{fingerprint}; ;
list a kind's tasks; GET /api/failures/{fingerprint}/tasks; failures tasks; GET /failures/{fingerprint}/tasks; ;
say what a kind is; PUT /api/failures/{fingerprint}; failures mark; POST /failures/{fingerprint}/mark; ; mark failure
list dead letters; GET /api/dead-letters; dead-letters list; GET /dead-letters; SELECT * FROM celeriac.dead_letters;
show a dead letter; GET /api/dead-letters/{letter}; dead-letters show; GET /dead-letters/{letter}; SELECT * FROM celeriac.dead_letters WHERE id = 7;
replay a dead letter; POST /api/dead-letters/{letter}/replay; dead-letters replay; POST /dead-letters/{letter}/replay; ; replay dead_letter
discard a dead letter; POST /api/dead-letters/{letter}/discard; dead-letters discard; POST /dead-letters/{letter}/discard; ; discard dead_letter
# Schedules
list; GET /api/admin/scheduled-jobs  GET /api/lateness; schedules list; GET /schedules; SELECT * FROM celeriac.scheduled_jobs;
show one, its instants and how late; GET /api/admin/scheduled-jobs/{job}  GET /api/admin/scheduled-jobs/{job}/ticks  GET /api/admin/scheduled-jobs/{job}/lateness; schedules ticks; GET /schedules/{name:name}; SELECT * FROM celeriac.scheduled_jobs WHERE name = 'nightly';
add; POST /api/admin/scheduled-jobs; schedules add; GET /new-schedule  POST /new-schedule; ; create schedule
change; PUT /api/admin/scheduled-jobs/{job}; schedules edit; GET /edit-schedule/{name:name}  POST /edit-schedule/{name:name}  POST /reset-schedule/{name:name}; ; update schedule  reset schedule
switch on or off; POST /api/admin/scheduled-jobs/{job}/toggle; schedules toggle; POST /switch-schedule/{name:name}; ; toggle schedule
delete; DELETE /api/admin/scheduled-jobs/{job}; schedules delete; POST /delete-schedule/{name:name}; ; delete schedule
run now; POST /api/admin/scheduled-jobs/{job}/run-now; schedules run-now; POST /run-schedule/{name:name}; ; run-now schedule
# Roles
list; GET /api/roles  GET /api/roles/{role}; status; GET /roles  GET /roles/{role:name}; SELECT * FROM celeriac.roles;
see pace, waits and retries; GET /api/tasks/metrics  GET /api/tasks/metrics/{role}; roles metrics; GET /roles/{role:name}; ;
see how many workers it needs; GET /api/tasks/capacity  GET /api/tasks/capacity/{role}; roles capacity; GET /capacity; SELECT * FROM celeriac.v_worker_capacity  SELECT celeriac.wanted_slots('product_resync');
see why its tasks wait; GET /api/roles/{role}/waits; roles waits; GET /roles/{role:name}; ;
see what passes gave; GET /api/roles/{role}/passes; roles decisions; GET /decisions  GET /decisions/{number}; SELECT * FROM celeriac.passes;
see what the last review left; GET /api/reviews  GET /api/reviews/{role}; roles reviews; ; SELECT * FROM celeriac.queue_states;
see what completed last; GET /api/tasks/role/{role}/last-completion  GET /api/tasks/role/{role}/recent; tasks list; GET /tasks; SELECT * FROM celeriac.history WHERE status = 'completed';
pause; POST /api/roles/{role}/pause; roles pause; POST /pause-role/{role:name}; ; pause role
resume; POST /api/roles/{role}/resume; roles resume; POST /resume-role/{role:name}; ; resume role
set limits; PUT /api/roles/{role}/limits  POST /api/roles/{role}/limits/reset; roles limit; POST /limits-of-role/{role:name}  POST /reset-limits-of-role/{role:name}; ; limits role
run a pass now; ; roles dispatch; POST /pass-of-role/{role:name}; ;
give its waiting tasks another name; ; roles move; ; ; move task
# Accounts
list with their shares; GET /api/accounts  GET /api/shares; accounts list; GET /accounts; SELECT * FROM celeriac.account_policies;
show one; GET /api/accounts/{account}  GET /api/shares/account; accounts show; GET /accounts/{account:name}; SELECT * FROM celeriac.account_policies WHERE account = 'acme';
set weight and cap; PUT /api/accounts/{account}; accounts set; POST /set-account/{account:name}; ; policy account
pause; POST /api/accounts/{account}/pause; accounts pause; POST /pause-account/{account:name}; ; policy account
resume; POST /api/accounts/{account}/resume; accounts resume; POST /resume-account/{account:name}; ; policy account
# Locks
list lock keys; GET /api/locks; locks list; GET /locks; SELECT * FROM celeriac.locks;
show who waits behind one; GET /api/locks/queue; locks show; GET /locks/{key:name}; SELECT * FROM celeriac.behind WHERE lock_key = 'k';
list unique keys; GET /api/unique-keys; locks unique-keys; GET /unique-keys; SELECT role, unique_key, id FROM celeriac.tasks WHERE unique_key IS NOT NULL;
# Workers
list; GET /api/workers; workers list; GET /workers; SELECT * FROM celeriac.workers;
show one, minute by minute; GET /api/workers/{worker_id}/hour  GET /api/workers/{worker_id}/heartbeat; workers hour; GET /workers/{worker:name}; SELECT * FROM celeriac.workers WHERE worker_id = 'store-7:31';
report as a worker; POST /api/workers/heartbeat; ; ; ; report worker
let one end; POST /api/workers/{worker_id}/decommission; workers decommission; POST /drain-worker/{worker:name}; ; decommission worker
take that back; POST /api/workers/{worker_id}/resume; workers resume; POST /resume-worker/{worker:name}; ; resume worker
free what dead ones hold; POST /api/tasks/recover-stale; workers recover; POST /free-tasks-of/{worker:name}; SELECT celeriac.recover_stale_tasks(10); recover-stale task
simulate a fleet; ; workers simulate; ; ;
# What is wrong
examine; GET /api/doctor; doctor  status; GET /system  GET /overview; ;
list alerts; GET /api/alerts  GET /api/alerts/pending  GET /api/alerts/silences; alerts list; GET /alerts; SELECT * FROM celeriac.alerts;
silence one; POST /api/alerts/{name}/silence; alerts silence; POST /alerts/silence; ; silence alert
end a silence; POST /api/alerts/{name}/unsilence; alerts unsilence; POST /alerts/unsilence; ; end silence alert
list beats; GET /api/beats; status; GET /system; SELECT * FROM celeriac.beats;
read the audit trail; GET /api/audit; audit; GET /audit  GET /audit/export.{kind}; SELECT * FROM celeriac.audit;
report for a bug's description; ; report; ; ;
scrape figures; GET /metrics; ; ; ;
# Access
create a token; ; tokens create; ; ; create token
list tokens; ; tokens list; ; SELECT name, scopes FROM celeriac.api_tokens;
revoke a token; ; tokens revoke; ; ; revoke token
limit what a login enqueues; ; logins limit; ; ; limit enqueuer
lift its limits; ; logins free; ; ; free enqueuer
list limited logins; ; logins list; ; ;
sign in and out; ; ; GET /sign-in  POST /sign-in  POST /sign-out; ;
choose how pages look; ; ; POST /looks; ;
keep a view of one's own; ; ; POST /views/mine  POST /forget-view/mine; ;
keep a view for all; ; ; POST /views/shared  POST /forget-view/shared; ; save view  forget view
# Set up
begin a project; ; init; ; ;
check it; ; check; ; ;
migrate the database; ; migrate; ; ;
run it all; ; up; ; ;
serve API and dashboard; ; serve; ; ;
read the API's own document; GET /openapi.json; serve; ; ;
repair now; ; sweep; ; ;
# The documents' own
crawl jobs; GET /api/admin/jobs  GET /api/admin/jobs/stats  GET /api/admin/jobs/{job}; tasks list; GET /tasks; SELECT * FROM celeriac.worker_tasks;
change crawl jobs; PUT /api/admin/jobs/{job}/status  PUT /api/admin/jobs/{job}/priority  POST /api/admin/jobs/{job}/boost  POST /api/admin/jobs/{job}/retry  PUT /api/admin/jobs/bulk/status  POST /api/admin/jobs/bulk/retry; tasks retry  tasks cancel  tasks prioritise; ; ; retry task  cancel task  priority task  boost task
generate tasks of stores; POST /api/tasks/generate/resync  POST /api/tasks/generate/discovery  POST /api/tasks/store/{store}/run-now; tasks enqueue; ; ; enqueue task
see a store's task; GET /api/tasks/store/{store}/active; tasks list; GET /tasks; ;
migrate from the old crawler; POST /api/tasks/migration/disable-old-schedules  POST /api/tasks/migration/cancel-pending-crawl-jobs  POST /api/tasks/migration/create-resync-tasks  POST /api/tasks/migration/full-migrate; ; ; ;
see how far that is; GET /api/tasks/migration/status; ; ; ;
run a system's job now; POST /api/trigger/{system}/{job}; tasks enqueue; POST /enqueue/{role:name}; ;
"""  # noqa: E501

#: What a command is written with where it alone has the operation.
LOGIN = "a login to Postgres"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, under the words of each surface that has it."""

    section: str
    name: str
    api: tuple[str, ...]
    command: tuple[str, ...]
    dashboard: tuple[str, ...]
    sql: tuple[str, ...]
    audit: tuple[str, ...]

    @property
    def scopes(self) -> set[str]:
        """The scopes that its routes ask for. Of several a caller needs the one of the route that he calls."""
        return {scope for route in (*self.api, *self.dashboard) if (scope := of_routes().get(route))}

    def row(self) -> str:
        permission = ", ".join(f"`{scope}`" for scope in sorted(self.scopes)) or (LOGIN if self.command else "")
        queries = tuple(one if one.startswith("SELECT") else f"{LIMIT} {one}" for one in self.sql)
        cells = (self.api, self.command, self.dashboard, queries)
        texts = ("<br>".join(f"`{one}`" for one in cell) for cell in cells)
        audit = "<br>".join(f"`{one}`" for one in self.audit)
        return f"| {self.name} | {' | '.join(texts)} | {permission} | {audit} |"


def operations() -> Iterator[Operation]:
    """Yield all operations, section by section."""
    section = ""
    for line in ROWS.strip().splitlines():
        if line.startswith("# "):
            section = line[2:]
            continue
        name, *cells = (cell.strip() for cell in line.split(";"))
        api, command, pages, sql, audit = (tuple(filter(None, cell.split("  "))) for cell in cells)
        yield Operation(section, name, api, command, pages, sql, audit)


@cache
def of_routes() -> dict[str, str | None]:
    """Return the scope of each route of the API and of the dashboard; None: it is open."""
    scopes: dict[str, str | None] = {f"{method} {path}": scope for method, path, scope in of_api()}
    for route in (route for router in dashboard.ROUTERS for route in router.routes):
        scope = next((one.call.scope for one in route.dependant.dependencies if isinstance(one.call, May)), None)
        scopes |= {f"{method} {route.path}": scope for method in route.methods - {"HEAD"}}
    return scopes


def commands() -> set[str]:
    return {*names(main)}


def audited() -> set[str]:
    """Return each action and kind that the engine writes into the audit trail, as its calls have them."""
    return {pair for path in sorted((ROOT / "celeriac").rglob("*.py")) for pair in _audited(path.read_text())}


#: Functions that are given the action of a row in the trail, and the kind of what it changed.
_KINDS = {"_audit": "schedule", "change": "schedule", "ended": "dead_letter", "audited": "task", "_prioritise": "task"}


def _audited(text: str) -> Iterator[str]:
    tree = ast.parse(text)
    usual = [node for one in ast.walk(tree) if isinstance(one, ast.arguments) for node in _usual(one)]
    yield from (f"{action} schedule" for node in usual for action in _texts(node))
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name not in ("write", *_KINDS):
            continue
        named = [keyword.value for keyword in call.keywords if keyword.arg == "action"]
        actions = [text for node in (*named, *call.args[1:2]) for text in _texts(node)]
        kinds = [_KINDS[name]] if name in _KINDS else [kind for node in call.args[2:3] for kind in _texts(node)]
        yield from (f"{action} {kind}" for action in actions for kind in kinds)


def _usual(arguments: ast.arguments) -> Iterator[ast.expr]:
    """Yield the default of an action that a function is not given."""
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if argument.arg == "action" and default is not None:
            yield default


def _texts(node: ast.expr) -> list[str]:
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.IfExp(body=one, orelse=other):
            return _texts(one) + _texts(other)
        case ast.JoinedStr():
            return [re.sub(r"\{move\}", move, ast.unparse(node)[2:-1]) for move in MOVES]
    return []


def _sql(condition: str) -> str:
    return condition.replace("{0}", "{}")


def conditions() -> str:
    """Return the table of what narrows a list of tasks."""
    rows = (
        f"| `{one.name}` | `{one.option}` | `{one.page}:` | `{_sql(one.sql)}` | {one.help} |".replace("||", "\\|\\|")
        for one in CONDITIONS
    )
    header = (
        "| API | command | dashboard | SQL, on `celeriac.worker_tasks` | meaning |\n| --- | --- | --- | --- | --- |\n"
    )
    return f"\n## What narrows a list of tasks\n\n{header}{''.join(f'{row}{chr(10)}' for row in rows)}"


def page() -> str:
    lines, section = [], ""
    for one in operations():
        if one.section != section:
            section = one.section
            header = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
            lines += ["", f"## {section}", "", *header]
        lines.append(one.row())
    return HEAD.rstrip("\n") + "\n" + "\n".join(lines) + "\n" + conditions()


if __name__ == "__main__":
    PAGE.write_text(page())
