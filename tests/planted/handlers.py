"""Whatever a handler does, whatever a thing is called, and where only the tests' own set-up held the documents."""

from __future__ import annotations

from tests.planted.defect import Defect

ENDS = "tests/postgres/test_handlers_ends.py"
BY_NAME = "tests/postgres/test_enqueue_by_name.py"
NAMES = "tests/dashboard/test_odd_names.py"
FORKS = "tests/end_to_end/test_forks.py::test_what_forked_children_call_comes_and_their_end_ends_nothing_else"
SIGNALS = "tests/end_to_end/test_forks.py::test_a_signal_to_a_forked_child_ends_it_as_it_ends_any_program"
CLOSED = "tests/postgres/test_closed_apps.py::test_however_it_was_used"

DEFECTS = [
    # -- whatever a handler does ---------------------------------------------------------------------------------------
    Defect(
        "a worker that drains and does not end is nobody's finding", "celeriac/insights/fleet/watched.py",
        "WHERE status = 'draining' AND jsonb_typeof(resources -> 'drain_overdue')",
        "WHERE status = 'active' AND jsonb_typeof(resources -> 'drain_overdue')",
        "tests/postgres/test_alerts.py::test_a_worker_that_drains_and_does_not_end_is_told_and_is_the_doctors_finding",
    ),
    Defect(
        "a drain that does not end is live", "celeriac/worker/pulse.py",
        "return not self.overdue() and (", "return (",
        "tests/pure/test_pulse.py::test_one_that_drains_is_live_until_it_should_have_ended",
    ),
    Defect(
        "what is no Exception ends its process", "celeriac/run/children.py",
        "if not isinstance(error, Exception) and not is_from_outside(error):", "if False:",
        f"{ENDS}::test_what_is_no_exception_is_one_failure",
    ),
    Defect(
        "what a hook raises ends its process", "celeriac/run/execute.py",
        "        if is_from_outside(error):\n            raise error\n", "        raise error\n",
        f"{ENDS}::test_a_hook_that_exits_is_no_loss",
    ),
    Defect(
        "Ctrl-C of nobody ends a process", "celeriac/run/outside.py",
        "        return _may_be_interrupted()\n", "        return True\n",
        f"{ENDS}::test_an_interrupt_that_nobody_sent_is_one_failure",
    ),
    Defect(
        "what a handler has started goes on where its task is handed back", "celeriac/worker/lifeline.py",
        "self.left_behind.part(stops=self.parted)", "self.left_behind.part(stops=False)",
        "tests/end_to_end/test_stops.py::test_what_a_handler_has_started_ends_with_its_process[threads]",
    ),
    Defect(
        "an error is judged by what can be pickled of it", "celeriac/run/run.py",
        "        error = self.raised or error\n", "",
        f"{ENDS}::test_an_error_that_cannot_be_pickled_is_judged_and_told_as_itself",
    ),
    Defect(
        "a handler goes on after its statement failed", "celeriac/run/sessions.py",
        "if status == TRANSACTION_STATUS_INERROR:", "if status is TRANSACTION_STATUS_INERROR is None:",
        f"{ENDS}::test_a_handler_that_goes_on_after_its_statement_failed_fails_and_is_not_lost",
    ),
    Defect(
        "a handler commits before its outcome", "celeriac/run/sessions.py",
        "    if not session.is_settling and not session.in_nested_transaction():\n"
        "        raise CeleriacError(session.early)\n",
        "    return\n",
        f"{ENDS}::test_a_commit_of_the_handlers_own_is_refused_and_names_what_to_use",
    ),
    Defect(
        "a retry's options are dropped", "celeriac/seam/task.py",
        "if name not in RETRY_OPTIONS and value", "if name in () and value",
        f"{ENDS}::test_an_option_of_calls_is_refused_to_a_retry",
    ),
    Defect(
        "results that are no numbers are sent to Postgres", "celeriac/store/encoding.py",
        '": ", ", ", False, False, False)', '": ", ", ", False, False, True)',
        f"{ENDS}::test_a_result_that_cannot_be_stored_fails_once",
    ),
    Defect(
        "a handler may yield", "celeriac/run/coroutines.py",
        "if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):", "if inner is None:",
        "tests/pure/test_coroutines.py::test_a_handler_that_yields_is_refused_where_it_is_declared",
    ),
    Defect(
        "what a forked child calls waits for its parent's outcome", "celeriac/run/run.py",
        "return run if run is None or run.generation == forks.generation else None", "return run",
        f"{FORKS}[prefork]",
    ),
    Defect(
        "the worker's handlers are its children's", "celeriac/run/children.py",
        "if _is_the_parents(number) or (number == signal.SIGINT and interrupts):",
        "if number == signal.SIGINT and interrupts:",
        f"{SIGNALS}[threads]",
    ),
    Defect(
        "what a pool ignores its children ignore", "celeriac/run/children.py",
        "(handler is signal.SIG_IGN and number in _pools)", "(handler is None and number in _pools)",
        f"{SIGNALS}[prefork]",
    ),
    Defect(
        "a Ctrl-C that comes at once is lost", "celeriac/run/children.py",
        "signal.signal(number, signal.SIG_DFL)\n",
        "signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)\n",
        f"{SIGNALS}[threads]",
    ),
    Defect(
        "neighbours are charged with their killer", "celeriac/run/traces.py",
        "row.token: trace.unbegun(row.token, row.ids)\n", "row.token: trace.unbegun(row.token, [])\n",
        "tests/end_to_end/test_neighbours.py::test_neighbours_of_a_killer_that_never_began_run_without_a_loss[solo]",
    ),
    Defect(
        "a thread's loop keeps the first run", "celeriac/run/coroutines.py",
        "Context().run(asyncio.new_event_loop)", "asyncio.new_event_loop()",
        f"{CLOSED}[traced]",
    ),
    Defect(
        "an exit hook keeps what sends nothing", "celeriac/dispatch/kicks.py",
        "        after_fork(self._forget)\n", "        after_fork(self._forget)\n        atexit.register(self.flush)\n",
        f"{CLOSED}[drained]",
    ),
    # -- names and ids -------------------------------------------------------------------------------------------------
    Defect(
        "a number means the row, whatever is called so", "celeriac/insights/tasks/tasks.py",
        "        raise _means_two(task_id, task[\"id\"], other)\n", "        return task\n",
        f"{NAMES}::test_an_id_that_is_a_number_never_means_another_task_s_row",
    ),
    Defect(
        "ids of any length", "celeriac/roles/bounds.py",
        "len(value.encode()) <= LONGEST_KEY", "len(value.encode()) <= 10 * LONGEST_KEY",
        f"{NAMES}::test_an_id_no_surface_could_name_is_refused_by_the_call",
    ),
    Defect(
        "a key depends on the order of a mapping", "celeriac/roles/keys.py",
        "for name in sorted(value, key=lambda name: (str(type(name)), str(name)))}", "for name in value}",
        "tests/pure/test_keys.py::test_a_key_does_not_depend_on_the_order_of_a_mapping",
    ),
    Defect(
        "a result is revoked for nothing", "celeriac/seam/control.py",
        "    if isinstance(task, AsyncResult):\n        return [task.id]\n",
        "    if isinstance(task, AsyncResult):\n        return []\n",
        f"{NAMES}::test_a_revoke_takes_results_and_refuses_what_names_no_task",
    ),
    Defect(
        "two schedules have one variable", "celeriac/schedules/listed.py",
        "        if other != name:\n", "        if other is None:\n",
        "tests/postgres/test_celerys_beat.py::test_two_names_that_make_one_variable_stop_beat",
    ),
    # -- the documents, without the tests' own set-up ------------------------------------------------------------------
    Defect(
        "a resync planned for June absorbs today's", "celeriac/enqueue/intake.py",
        'if role.unique_while == "due" and made', 'if role.unique_while == "never" and made',
        "tests/postgres/enqueue/test_unique_while.py::test_one_planned_for_june_does_not_absorb_todays",
    ),
    Defect(
        "in SQL, too", "celeriac/store/routines/arguments.sql",
        "|| CASE WHEN rule ->> 'unique_while' = 'due' AND", "|| CASE WHEN rule ->> 'unique_while' = 'never' AND",
        "tests/systems/test_resyncs.py::test_what_is_planned_for_a_later_day_takes_nobodys_place",
    ),
    Defect(
        "a stub has no keys", "celeriac/roles/role.py",
        "        changes[option] = taken(option)\n", "        _ = taken(option)\n",
        f"{BY_NAME}::test_a_declaration_that_says_less_takes_the_keys_that_sql_knows_of",
    ),
    Defect(
        "a declaration contradicts", "celeriac/roles/role.py",
        "if mine is not None and newer == 0:\n", "if mine is not None and newer == 0 and mine is known:\n",
        f"{BY_NAME}::test_a_declaration_that_contradicts_is_refused_unless_a_release_is_the_newer",
    ),
    Defect(
        "a row that is inserted has no lock", "celeriac/store/routines/worker_tasks.sql",
        "    task.lock_key := coalesce(task.lock_key, celeriac.lock_of(task.role, rule, bound));\n", "",
        f"{BY_NAME}::test_an_inserted_row_is_by_the_rules_of_its_role",
    ),
    Defect(
        "two failures of a store are retried together", "docs/monitoring.md",
        " AND o.id > t.id)));", ")));",
        "tests/postgres/test_seed_queries.py::test_retrying_failed_tasks",
    ),
    Defect(
        "a queued job that is to be queued is refused", "celeriac/operate/steer.py",
        "if row.status in (PENDING, CLAIMED)]", "if row.status in ()]",
        "tests/api/test_crawl_jobs_document.py::test_each_of_its_calls_does_what_it_says",
    ),
    Defect(
        "the page has a signal that nobody asserts", "docs/workers.md",
        "| `SIGQUIT` | completes | completes | waits again |", "| `SIGQUIT` | completes | completes | fails |",
        "tests/end_to_end/test_stops.py::test_the_table_of_the_page_is_what_is_asserted_here",
    ),
    Defect(
        "a period of a millisecond", "celeriac/schedules/expressions/durations.py",
        "if exact < SHORTEST / timedelta(microseconds=1):", "if exact < SHORTEST / timedelta(milliseconds=1):",
        "tests/pure/test_expressions.py::test_a_bad_expression_is_refused_with_what_is_wrong_and_an_example",
    ),
    Defect(
        "a call of the documents that names no token", "docs/documents.md",
        "`GET /api/tasks/capacity` (token: read)", "`GET /api/tasks/capacity`",
        "tests/pure/test_documents.py::test_every_row_holds",
    ),
]  # fmt: skip
