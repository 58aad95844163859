"""Rows of the InstaSite builds' document."""

from __future__ import annotations

from tests.planted.defect import Defect

BUILT = "tests/systems/test_instasites.py"
A_ROW = "tests/postgres/enqueue/test_enqueue.py::test_a_call_is_one_row_with_its_keys_and_the_roles_defaults"

DEFECTS = [
    Defect(
        "how long a site takes is not measured", "celeriac/store/routines/backlog.sql",
        "coalesce(means.run_seconds, counted.run_seconds), means.wait_seconds",
        "means.run_seconds, means.wait_seconds",
        "tests/postgres/test_metrics.py::test_a_role_that_forgets_its_successes_has_rates_as_well",
        ("30 to 60 seconds a site",),
    ),
    Defect(
        "accounts that are numbers by their text", "celeriac/dispatch/fairness.py",
        "return len(account), account", "return 0, account",
        "tests/postgres/test_fair_passes.py::test_accounts_that_are_numbers_take_turns_as_numbers",
        ("accounts in the order of their ids",),
    ),
    Defect(
        "a call's account is not kept", "celeriac/enqueue/insert.py",
        "SELECT task_id, role, account, lock_key, unique_key, priority, args, kwargs, headers, due,",
        "SELECT task_id, role, '', lock_key, unique_key, priority, args, kwargs, headers, due,",
        A_ROW,
        ("collection `instasite_queues`", "`models/instasite-queue.js`"),
    ),
    Defect(
        "a build waits 6 seconds", "tasks/instasites.py",
        "max_retries=4, retry_backoff=5,", "max_retries=4, retry_backoff=6,",
        "tests/pure/test_retries.py::test_a_build_waits_5_10_20_40_seconds_where_the_seed_configured_a_constant",
        ("`backoff: 5000`",),
    ),
    Defect(
        "an account's tickets one behind the other", "celeriac/dispatch/claim.py",
        "_TURN = itemgetter(4, 5)", "_TURN = itemgetter(5, 4)",
        "tests/postgres/test_fair_passes.py::test_the_accounts_tickets_take_turns",
        ("queue `instasites-build-[accountId]`",),
    ),
    Defect(
        "a batch of one site and a half", "tasks/environment.py",
        " or (whole and not float(value).is_integer()):", ":",
        "tests/outside/test_environment.py::test_what_cannot_be_keeps_the_application_from_starting",
        ("tune the batch size",),
    ),
    Defect(
        "the next pass begins with the first that got a slot", "celeriac/dispatch/fairness.py",
        "last = max(turn for turn", "last = min(turn for turn",
        "tests/pure/test_fairness.py::test_the_next_pass_starts_behind_the_account_that_got_the_last_slot",
        ("next time from account 60 on",),
    ),
    Defect(
        "a build's account is not its site's", "tasks/instasites.py",
        'role="instasite_build", fair_by="account_id",', 'role="instasite_build", fair_by="instasite_id",',
        "tests/api/test_enqueue.py::test_a_task_is_a_row_with_its_roles_keys",
        ("`account_id`",),
    ),
    Defect(
        "a lost connection is the handler's failure", "celeriac/run/settler.py",
        "if isinstance(error, _Unwritten) or is_retryable(error):", "if isinstance(error, _Unwritten):",
        "tests/postgres/test_lost_commits.py::test_a_restart_before_the_commit_burns_no_attempt",
        ("a lost connection to the database: retried",),
    ),
    Defect(
        "a sweep that failed never runs again", "celeriac/schedules/beat.py",
        "if last is not None and not last.done():", "if last is not None:",
        "tests/postgres/test_beat.py::test_what_throws_is_told_and_runs_again",
        ("an error does not stop the cron",),
    ),
    Defect(
        "the first account gets all that it wants", "celeriac/dispatch/fairness.py",
        "slots = 1 if len(queue) > 1 else min(free, wants[turn] - before)", "slots = min(free, wants[turn] - before)",
        "tests/pure/test_fairness.py::test_few_rows_behind_the_cursor_do_not_let_one_account_flood_the_batch",
        ("behind the cursor “60 or fewer: all of them”",),
    ),
    Defect(
        "a published site is not tracked", "tasks/instasites.py",
        "    analytics.using(account=account).delay(site.id)\n", "",
        f"{BUILT}::test_a_site_is_built_published_and_followed_up",
        ("afterwards: InstaSite analytics",),
    ),
    Defect(
        "tries are not counted", "celeriac/settle/retries.py",
        "attempt.max_rounds if permanent else attempt.tries + 1", "attempt.max_rounds if permanent else attempt.tries",
        f"{BUILT}::test_5_tries_of_5_attempts_and_then_it_has_failed",
        ("`tries: { $inc: 1 }`, which updates nothing",),
    ),
    Defect(
        "each creation of a site has a name of its own", "tasks/duda.py",
        "{hashlib.sha256(external_id.encode()).hexdigest()[:16]}",
        "{hashlib.sha256(external_id.encode() + os.urandom(8)).hexdigest()[:16]}",
        f"{BUILT}::test_a_site_whose_creation_nobody_heard_of_is_not_created_twice",
        ("side effect: sites at Duda, which a retry must not double",),
    ),
    Defect(
        "each attempt waits 5 seconds longer than the last", "celeriac/roles/backoff.py",
        "self.base * 2.0 ** min(retry, 64))", "self.base * (1 + min(retry, 64)))",
        f"{BUILT}::test_an_answer_of_500_is_retried_after_5_10_20_and_40_seconds",
        ("the schedule of attempts: at once, then 5, 10, 20, 40 seconds later",),
    ),
]  # fmt: skip
