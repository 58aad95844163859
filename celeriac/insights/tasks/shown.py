"""Fields whose texts are shown even to viewers who may not see calls; the texts of all other fields are hidden from
them.
"""

from __future__ import annotations

from typing import Final

#: Names and keys, words for states, and sentences of the engine, in which an error's text is marked (`quoted`).
SHOWN: Final = frozenset(
    {
        "about", "account", "accounts", "action", "awaits", "backing_off", "backoff_reason", "barrier",
        "basis", "beat_id", "beside", "by", "check", "command", "created_by", "cron_expression", "cure",
        "cursor", "cursor_after", "cursor_before", "declared", "description", "does", "enqueued_by",
        "estimated", "example", "facts", "fingerprint", "foreign", "frame", "from_status", "headline",
        "help", "holder", "hostname", "id", "in_force", "in_words", "judged", "keys", "kind", "label",
        "labels", "last_task_id", "left_out_why", "level", "lock_key", "login", "may", "meaning", "measure",
        "misfire", "move", "name", "next", "note", "notes", "of", "outcome", "overlap", "owner", "page",
        "permissions", "planned_as", "problem", "quarantined", "queue", "queues", "rate_limit", "reason",
        "redis", "reported_by", "reviewed_by", "role", "roles", "room", "rules", "runbook", "runs", "says",
        "schedule", "scopes", "seen_by", "sender", "sentence", "severity", "shared", "sql", "state",
        "status", "stopped", "subject", "tables", "target", "task", "task_id", "text", "timezone", "title",
        "to_status", "trouble", "type", "unfit", "unique_key", "unit", "unread", "version", "via",
        "waits_for", "why", "why_nothing", "worker", "worker_id",
    }
)  # fmt: skip

#: The fields among them whose value is a mapping with data as its keys: its texts are shown, whatever the key.
OPEN: Final = frozenset({"cursor", "cursor_after", "cursor_before", "declared", "facts", "labels"})

#: The fields with sentences of the engine, which may quote errors. In all others « and » are a person's own.
SENTENCES: Final = frozenset(
    {"cure", "headline", "next", "quarantined", "reason", "says", "sentence", "trouble", "why"}
)
