"""Examples in the OpenAPI document: one for each body and each answer, composed of its fields' examples.

An answer's example has every field; a request's has the required ones and those with an example of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

#: Examples by field name, for fields without an example of their own; a name means the same in every model.
_NAMED: Mapping[str, Any] = {
    "account": "acme", "action": "retry", "args": [], "by": "deploy", "created_by": "deploy", "cursor_after": "bert",
    "claimants": [{"account": "acme", "waiting": 45, "holding": 2, "weight": 1.0, "cap": None}],
    "cursor_before": "acme", "enqueued_by": "deploy", "error_message": None, "field": "priority", "free": 6,
    "given": {"acme": 6}, "hostname": "node-7", "kwargs": {"dispensary_id": 123}, "lock_key": "dispensary:17",
    "losses": 0, "max_retries": 3, "max_rounds": 1, "message": "Input should be a valid integer",
    "name": "daily-askreddit", "owner": "api", "pid": 4711, "priority": 10, "queue": "product_resync",
    "queues": ["product_resync"], "repeated": 0, "resources": {"memory_mb": 256}, "retry_count": 0,
    "role": "product_resync", "seen_by": "beat@node-7:3", "sender": "gen31@web-1", "status": None, "store": 123,
    "task_id": "0f3e8c1a-6f1d-4a53-9f8e-9a2f6f0b6c11", "timezone": "UTC", "took_ms": 3.5, "tries": 1,
    "unique_key": None, "weight": 1.0, "why": "the store is back", "why_nothing": None,
    "worker_id": "celery@node-7:12",
}  # fmt: skip

_FORMATS = {
    "date-time": "2026-11-21T12:00:00Z", "date": "2026-11-21", "uuid": "5b0c9c2e-8b5e-4d43-9f2a-6a1f5e0c7d11",
}  # fmt: skip


class Examples:
    """The examples of a document's schemas."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.schemas: Mapping[str, Any] = document["components"]["schemas"]
        self._within: list[str] = []

    def add(self, document: Mapping[str, Any]) -> None:
        """Add an example to each body and each answer without one."""
        for operation in (one for operations in document["paths"].values() for one in operations.values()):
            for content in _contents(operation.get("requestBody", {})):
                content.setdefault("example", self.of(content.get("schema", {}), is_sent=True))
            for response in operation["responses"].values():
                for content in _contents(response):
                    content.setdefault("example", self.of(content.get("schema", {}), is_sent=False))

    def of(self, schema: Mapping[str, Any], *, is_sent: bool, name: str = "") -> Any:
        if (own := _own(schema)) is not None:
            return own[0]
        if "$ref" in schema:
            return self._of_named(schema["$ref"].rpartition("/")[2], is_sent, name)
        if "enum" in schema:
            return schema["enum"][0]
        several = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        if several and "properties" not in schema:  # else they define which of the fields go together
            return self._of_one(several, is_sent, name)
        if name in _NAMED and _fits(_NAMED[name], schema):
            return _NAMED[name]
        return self._of_type(schema, is_sent)

    def _of_named(self, schema: str, is_sent: bool, name: str) -> Any:
        """Return a named schema's example; None within itself, as for a tree's nodes, where the example ends."""
        if schema in self._within:
            return None
        self._within.append(schema)
        try:
            return self.of(self.schemas[schema], is_sent=is_sent, name=name)
        finally:
            self._within.pop()

    def _of_one(self, several: list[Mapping[str, Any]], is_sent: bool, name: str) -> Any:
        is_nullable = any(one.get("type") == "null" for one in several)
        if is_nullable and _NAMED.get(name, name) is None:
            return None
        return self.of(next(one for one in several if one.get("type") != "null"), is_sent=is_sent, name=name)

    def _of_type(self, schema: Mapping[str, Any], is_sent: bool) -> Any:
        match schema.get("type"):
            case "object":
                return self._of_object(schema, is_sent)
            case "array":
                one = self.of(schema.get("items", {}), is_sent=is_sent)
                return [] if one is None else [one]
            case "integer" | "number":
                return max(1, schema.get("minimum", 1))
            case "boolean":
                return bool(schema.get("default", False))
            case "string":
                return _FORMATS.get(schema.get("format", ""), "text")
        return None

    def _of_object(self, schema: Mapping[str, Any], is_sent: bool) -> dict[str, Any]:
        required = schema.get("required", ())
        return {
            name: self.of(part, is_sent=is_sent, name=name)
            for name, part in schema.get("properties", {}).items()
            if not is_sent or name in required or _own(part) is not None
        }


def _own(schema: Mapping[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    return schema.get("examples")


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    kinds = {"string": str, "integer": int, "number": int | float, "array": list, "object": dict}
    kind = kinds.get(schema.get("type", ""))
    return "$ref" not in schema.get("items", {}) and (kind is None or isinstance(value, kind))


def _contents(part: Mapping[str, Any]) -> Collection[dict[str, Any]]:
    return part.get("content", {}).values()
