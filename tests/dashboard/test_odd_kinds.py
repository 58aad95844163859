"""Accounts, keys, roles, workers, tokens, …: one of an odd name is the same one on every surface."""

from __future__ import annotations

import html
import json
import re
from urllib.parse import unquote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from celeriac.errors import ConfigurationError
from celeriac.operate import policies
from celeriac.roles.bounds import NAME, TEXT
from celeriac.roles.role import Role
from tests.dashboard.odd import NAMES, NO_NAMES, ODD, api, command, done, followed, links, ok, panel, pressed, quoted
from tests.dashboard.site import Site

#: Of roles and queues: `celery -Q` splits at commas.
ROLES = [name for name in NAMES if "," not in name]

KEYS = "SELECT id, is_new FROM celeriac.enqueue('crawl', '{\"store_id\": 1}', unique_key => :name)"


def test_an_account(site: Site) -> None:
    for name in ODD:
        made = site.app.send_task("crawl", [1], account=name)
        sent = site.rows.one(
            "SELECT id FROM celeriac.enqueue('crawl', '{\"store_id\": 1}', account => :name)", name=name
        )
        asked = ok(site, "POST", "tasks", json={"role": "crawl", "store_id": 1, "account": name})["id"]
        typed = done(site, "tasks", "enqueue", "--account", name, "--", "crawl", "store_id=1")["id"]
        site.post("enqueue/crawl", "admin", account=name, kwargs='{"store_id": 1}')
        rows = [row for (row,) in site.rows("SELECT id FROM worker_tasks WHERE account = :name ORDER BY id", name=name)]
        assert len(rows) == 5, name
        assert rows[:4] == [made.row_id, sent, asked, typed], name
        page = followed(site, "accounts", name)
        listed = ok(site, "GET", f"tasks?account={quoted(name)}")["tasks"]
        told = done(site, "tasks", "list", "--account", name)["items"]
        shown = panel(site, f"{followed(site, page, 'All its tasks').replace('?', '.json?')}", "tasks")["items"]
        assert [sorted(one["id"] for one in some) for some in (listed, told, shown)] == [rows] * 3, name

        at = f"accounts/{quoted(f'account={name}')}"
        assert done(site, "accounts", "pause", "--", name)["target"] == name
        assert ok(site, "GET", at)["paused"] is True
        assert pressed(site, page, "resume-account") == page
        assert ok(site, "POST", f"{at}/pause", json={})["target"] == name
        if name not in (".", ".."):
            assert ok(site, "GET", f"accounts/{quoted(name)}")["account"] == name
        with site.app.database.transaction() as connection:
            policies.set_account(connection, name, by="test", weight=2.0, paused=False)
        assert pressed(site, page, "set-account", cap="3") == page
        policy = "SELECT weight, cap, paused FROM celeriac.account_policies WHERE account = :name"
        assert site.rows(policy, name=name) == [(2.0, 3, False)], name
        assert done(site, "accounts", "show", "--", name)["account"] == name
        (move,) = re.findall(r'<a href="([^"]*move=cancel[^"]*)"', site.html(page))
        assert f"account={quoted(name)}" in html.unescape(move).replace("+", "%20") or name == "(none)"
    policed = [account for (account,) in site.rows("SELECT account FROM celeriac.account_policies ORDER BY account")]
    assert policed == sorted(ODD, key=policed.index)


def test_an_account_that_is_called_as_none_is_called_is_no_other_s(site: Site) -> None:
    of_nobody = site.app.send_task("crawl", [1], account="")
    its = site.app.send_task("crawl", [2], account="(none)")
    for account, meant in (("", of_nobody), ("(none)", its)):
        target = followed(site, f"accounts/{quoted(account)}", "All its tasks").replace("?", ".json?")
        assert [one["id"] for one in panel(site, target, "tasks")["items"]] == [meant.row_id]


def test_a_lock_key_and_a_unique_key(site: Site) -> None:
    for name in ODD:
        made = site.app.send_task("crawl", [1], lock_key=name, unique_key=name)
        assert site.rows(KEYS, name=name) == [(made.row_id, False)], name
        body = {"role": "crawl", "store_id": 1, "unique_key": name}
        assert ok(site, "POST", "tasks", json=body)["id"] == made.row_id, name
        typed = done(site, "tasks", "enqueue", "--unique-key", name, "--", "crawl", "store_id=1")
        assert typed["id"] == made.row_id, name
        sent = site.post("enqueue/crawl", "admin", unique_key=name, kwargs='{"store_id": 1}')
        assert sent.headers["location"].rpartition("/")[2] == str(made.row_id), name
        behind = site.post("enqueue/crawl", "admin", lock_key=name, kwargs='{"store_id": 2}')
        waiting = int(behind.headers["location"].rpartition("/")[2])

        for option, word, row in (
            ("lock_key", "lock", [made.row_id, waiting]),
            ("unique_key", "unique", [made.row_id]),
        ):
            listed = ok(site, "GET", f"tasks?{option}={quoted(name)}")["tasks"]
            told = done(site, "tasks", "list", f"--{option.replace('_', '-')}", name)["items"]
            shown = panel(site, f"tasks.json?{word}={quoted(name)}", "tasks")["items"]
            assert [sorted(one["id"] for one in some) for some in (listed, told, shown)] == [row] * 3, (option, name)
        queue = ok(site, "GET", f"locks/queue?lock_key={quoted(name)}")
        told = done(site, "locks", "show", "--", name)
        page = followed(site, "locks", name)
        assert [one["queue"][0]["id"] for one in (queue, told)] == [waiting] * 2, name
        assert panel(site, f"{page.removesuffix('.html')}.json", "queue")[0]["id"] == waiting, name
        assert ok(site, "GET", "unique-keys")["unique_keys"][0]["unique_key"] == name
        ok(site, "POST", "tasks/cancel", json={"ids": [made.row_id, waiting]})


TOO_LONG = "ü" * 501


def test_a_text_that_is_too_long_is_refused_by_all_in_the_same_words(site: Site) -> None:
    for option in ("account", "lock_key", "unique_key", "task_id"):
        with pytest.raises(Exception, match=re.escape(TEXT.right)):
            site.app.send_task("crawl", [1], **{option: TOO_LONG})
        for statement in (
            f"SELECT celeriac.enqueue('crawl', '{{\"store_id\": 1}}', {option} => :name)",
            f"INSERT INTO celeriac.worker_tasks (role, args, {option}) VALUES ('crawl', '[1]', :name)",
        ):
            with pytest.raises(Exception, match=f"(?i){re.escape(TEXT.right)}"):
                site.rows(statement, name=TOO_LONG)
        refused = api(site, "POST", "tasks", json={"role": "crawl", "store_id": 1, option: TOO_LONG})
        assert (refused.status_code, TEXT.right in refused.text) == (422, True), refused.text
        typed = command(
            site, "tasks", "enqueue", f"--{option.replace('_', '-')}", TOO_LONG, "--", "crawl", "store_id=1"
        )
        assert (typed.exit_code, TEXT.right in typed.stderr) == (3, True), typed.output
        if option != "task_id":
            sent = site.post("enqueue/crawl", "admin", **{option: TOO_LONG, "kwargs": '{"store_id": 1}'})
            assert TEXT.right in unquote(sent.headers["set-cookie"])
    assert site.rows("SELECT id FROM worker_tasks") == []


OF_ROLE = """
INSERT INTO celeriac.roles (role, definition, parameters)
SELECT :name, definition || jsonb_build_object('queue', CAST(:name AS text), 'fair_by', null), parameters
FROM celeriac.roles WHERE role = 'crawl'"""


def test_a_role(site: Site) -> None:
    for name in ROLES:
        assert Role(name=name, queue=name, aliases=(name,)).queue == name
        site.rows(OF_ROLE, name=name)
    pages = links(site, "roles")
    for name in ROLES:
        sent = site.rows.one("SELECT id FROM celeriac.enqueue(:name, '{\"store_id\": 1}')", name=name)
        asked = ok(site, "POST", "tasks", json={"role": name, "store_id": 1})["id"]
        typed = done(site, "tasks", "enqueue", "--", name, "store_id=1")["id"]
        page = pages[name]
        pressed_ = site.post(f"enqueue/{page.removeprefix('roles/')}", "admin", kwargs='{"store_id": 1}')
        rows = [sent, asked, typed, int(pressed_.headers["location"].rpartition("/")[2])]
        listed = ok(site, "GET", f"tasks?role={quoted(name)}")["tasks"]
        told = done(site, "tasks", "list", "--role", name)["items"]
        shown = panel(site, f"tasks.json?role={quoted(name)}", "tasks")["items"]
        assert [sorted(one["id"] for one in some) for some in (listed, told, shown)] == [rows] * 3, name

        at, paused = f"roles/{quoted(name)}", "SELECT role FROM celeriac.roles WHERE paused"
        assert done(site, "roles", "pause", "--", name)["target"] == name
        assert ok(site, "GET", at)["paused"] is True
        assert pressed(site, page, "resume-role") == page
        assert site.rows(paused) == []
        assert ok(site, "POST", f"{at}/pause", json={})["target"] == name
        assert site.rows(paused) == [(name,)]
        assert done(site, "roles", "resume", "--", name)["target"] == name
        assert pressed(site, page, "limits-of-role", rate_limit="10/m") == page
        assert ok(site, "PUT", f"{at}/limits", json={"timeout": 7})["target"] == name
        assert done(site, "roles", "limit", "--hard", "9", "--", name)["target"] == name
        limits = "SELECT rate_limit, timeout, hard_timeout FROM celeriac.role_limits WHERE role = :name"
        assert site.rows(limits, name=name) == [("10/m", 7.0, 9.0)], name
        for asked_ in ("waits", "decisions", "capacity", "metrics"):
            assert command(site, "roles", asked_, "--", name).exit_code == 0, (asked_, name)
    exposed = api(site, "GET", "../metrics").text
    labels = {one.labels.get("role") for family in text_string_to_metric_families(exposed) for one in family.samples}
    assert {*ROLES} <= labels


def test_no_role_queue_or_former_name_is_called_what_no_name_is(site: Site) -> None:
    for name in (*NO_NAMES, "a,b", "celeriac:x"):
        for options in (
            {"name": name},
            {"queues": (name,)},
            {"aliases": (name,)},
            *([{"queue": name}] if name else []),
        ):
            with pytest.raises(ConfigurationError, match=re.escape(NAME.right)):
                Role(**{"name": "plain"} | options)
        refused = api(site, "POST", "tasks", json={"role": name, "store_id": 1})
        assert refused.status_code == 422, name
        assert command(site, "tasks", "enqueue", "--", name, "store_id=1").exit_code == 3, name
        with pytest.raises(Exception, match="no role"):
            site.rows("SELECT celeriac.enqueue(:name, '{\"store_id\": 1}')", name=name)


def test_a_queue_of_a_role_and_its_lane(site: Site) -> None:
    queues = [name for name in ROLES if name != "a"]
    site.rows(
        "UPDATE celeriac.roles SET definition = definition || jsonb_build_object('queue', 'a', 'queues',"
        " CAST(:queues AS jsonb)) WHERE role = 'crawl'",
        queues=json.dumps(["a", *queues]),
    )
    for name in queues:
        site.rows(
            "INSERT INTO celeriac.roles (role, definition, parameters) SELECT celeriac.lane(role, :name), definition"
            " || jsonb_build_object('queue', CAST(:name AS text), 'lane_of', role), parameters FROM celeriac.roles"
            " WHERE role = 'crawl'",
            name=name,
        )
    for name in queues:
        sent = site.rows.one("SELECT id FROM celeriac.enqueue('crawl', '{\"store_id\": 1}', queue => :name)", name=name)
        listed = ok(site, "GET", f"tasks?queue={quoted(name)}")["tasks"]
        told = done(site, "tasks", "list", "--queue", name)["items"]
        shown = panel(site, f"tasks.json?queue={quoted(name)}", "tasks")["items"]
        assert [[one["id"] for one in some] for some in (listed, told, shown)] == [[sent]] * 3, name
        lane = f"crawl,{name}"
        assert done(site, "roles", "pause", "--", lane)["target"] == lane
        assert ok(site, "GET", f"roles/{quoted(lane)}")["paused"] is True
        page = followed(site, "roles", lane)
        assert pressed(site, page, "resume-role") == page
        assert site.rows("SELECT role FROM celeriac.roles WHERE paused") == []


def test_a_worker(site: Site) -> None:
    for name in NAMES:
        assert ok(site, "POST", "workers/heartbeat", json={"worker_id": name})["status"] == "active"
        at, status = f"workers/{quoted(name)}", "SELECT status FROM celeriac.workers WHERE worker_id = :name"
        page = followed(site, "workers", name)
        assert ok(site, "POST", f"{at}/decommission", json={})["target"] == name
        assert site.rows.one(status, name=name) == "draining"
        assert done(site, "workers", "resume", "--", name)["target"] == name
        assert done(site, "workers", "decommission", "--", name)["target"] == name
        assert pressed(site, page, "resume-worker") == page
        assert site.rows.one(status, name=name) == "active"
        assert ok(site, "GET", f"{at}/heartbeat")["worker_id"] == name
        assert ok(site, "GET", f"{at}/hour")["worker_id"] == name
        assert command(site, "workers", "hour", "--", name).exit_code == 0
        recovered = command(site, "workers", "recover", "--yes", "--", name)
        assert (recovered.exit_code, "so it lives" in recovered.stderr) == (3, True), recovered.output
    for name in NO_NAMES:
        refused = api(site, "POST", "workers/heartbeat", json={"worker_id": name})
        assert (refused.status_code, NAME.right in refused.text) == (422, True), refused.text


def test_a_token(site: Site) -> None:
    names = [name for name in NAMES if len(name) <= 100]
    for name in names:
        limits = ("--account", name, "--key", name)
        made = done(site, "tokens", "create", "--scope", "enqueue", *limits, "--", name)
        token = made["token"]
        body = {"role": "crawl", "store_id": 1, "lock_key": name}
        answer = api(site, "POST", "tasks", token=token, json=body | {"account": name})
        assert answer.status_code == 201, answer.text
        assert api(site, "POST", "tasks", token=token, json=body | {"account": "another"}).status_code == 403
        (made,) = site.rows("SELECT enqueued_by FROM worker_tasks WHERE account = :name", name=name)
        assert made == (name,)
        listed = ok(site, "GET", f"audit?by={quoted(name)}&kind=task")
        told = json.loads(command(site, "audit", "--json", "--by", name, "--kind", "task").stdout)
        shown = panel(site, f"audit.json?by={quoted(name)}&kind=task", "trail")
        for one in (listed, told, shown):
            assert f'"by": {json.dumps(name)}' in json.dumps(one), (name, one)
        assert done(site, "tokens", "revoke", "--", name) == {"name": name, "revoked": True}
        assert api(site, "POST", "tasks", token=token, json=body).status_code == 401
    for name in NO_NAMES:
        refused = command(site, "tokens", "create", "--scope", "read", "--", name)
        assert (refused.exit_code, "printable characters without a space" in refused.stderr) == (3, True), name


def test_what_a_token_may_is_said_of_any_text_that_an_account_or_a_key_is(site: Site) -> None:
    for n, name in enumerate(ODD):
        token = done(site, "tokens", "create", "--scope", "submit", "--account", name, "--key", name, "--", f"t{n}")[
            "token"
        ]
        body = {"role": "crawl", "store_id": 1, "account": name, "lock_key": name, "task_id": name}
        assert api(site, "POST", "tasks", token=token, json=body).status_code == 201, name
        assert site.rows.one("SELECT celeriac.is_among(:name, ARRAY[:name])", name=name) is True


def test_a_login(site: Site) -> None:
    for name in [name for name in NAMES if len(name) <= 63]:
        done(site, "logins", "limit", "--role", "crawl", "--", name)
        assert site.rows("SELECT login FROM celeriac.enqueuers") == [(name,)]
        done(site, "logins", "free", "--", name)
        assert site.rows("SELECT login FROM celeriac.enqueuers") == []


def test_a_view(site: Site) -> None:
    for name in NAMES:
        assert site.post("views/mine", "admin", name=name, account=name).status_code == 303
        assert site.get(followed(site, "tasks", name), "admin").status_code == 200
        assert site.post("forget-view/mine", "admin", name=name).status_code == 303
        assert site.rows("SELECT name FROM celeriac.saved_views") == []
    for name in NO_NAMES:
        assert NAME.right in html.unescape(site.told("views/mine", name=name, account="anna"))


def test_a_subject_of_alerts(site: Site) -> None:
    silenced = "SELECT name, subject FROM celeriac.alert_silences"
    for name in ODD:
        done(site, "alerts", "silence", "--", "key_stuck", name)
        assert site.rows(silenced) == [("key_stuck", name)], name
        assert ok(site, "GET", "alerts/silences")["silences"][0]["subject"] == name
        ok(site, "POST", "alerts/key_stuck/unsilence", json={"subject": name})
        assert site.rows(silenced) == []
        ok(site, "POST", "alerts/key_stuck/silence", json={"subject": name, "seconds": 60})
        assert site.post("alerts/unsilence", "operate", name="key_stuck", subject=name).status_code == 303
        assert site.rows(silenced) == [], name
        assert site.post("alerts/silence", "operate", name="key_stuck", subject=name, span="1h").status_code == 303
        done(site, "alerts", "unsilence", "--", "key_stuck", name)
        assert site.rows(silenced) == [], name


def test_a_workflow(site: Site) -> None:
    for name in ODD:
        made = site.app.send_task("crawl", [1])
        site.rows("UPDATE celeriac.tasks SET workflow = :name WHERE id = :row", name=name, row=made.row_id)
        assert done(site, "workflows", "show", "--", name)["id"] == name
        (told,) = done(site, "workflows", "tasks", "--", name)["items"]
        page = followed(site, "workflows", name)
        assert panel(site, f"{page.removesuffix('.html')}.json", "parts")["items"][0]["id"] == told["id"] == made.row_id
        if name not in (".", ".."):
            assert ok(site, "GET", f"workflows/{quoted(name)}")["id"] == name
        assert pressed(site, page, "cancel-workflow") == page
        assert site.rows.one("SELECT status FROM worker_tasks WHERE id = :row", row=made.row_id) == "cancelled"


def test_a_dead_letter_s_task(site: Site) -> None:
    for name in ODD:
        site.rows(
            "INSERT INTO celeriac.dead_letters (digest, name, reason, size, message) VALUES"
            " (sha256(convert_to(:name, 'UTF8')), :name, 'no role', 1, 'x')",
            name=name,
        )
        (told,) = done(site, "dead-letters", "list", "--name", name)
        shown = followed(site, "dead-letters", name)
        assert site.get(shown.replace("?", ".json?")).status_code == 200
        done(site, "dead-letters", "discard", "--name", name, "--yes")
        assert told["name"] == name
        assert site.rows.one("SELECT count(*) FROM celeriac.dead_letters") == 0, name
