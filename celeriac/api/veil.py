"""Masked answers: for a token that may not see calls, the same JSON without arguments and results."""

from __future__ import annotations

import json

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Send

from celeriac.insights.tasks.veil import veiled


class Veil:
    """Masks an answer's JSON and sends it once it is whole; anything else is sent as it is."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.start: Message | None = None
        self.body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_json(message):
            self.start = message
        elif self.start is None:
            await self.send(message)
        else:
            self.body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._send_whole(self.start)

    async def _send_whole(self, start: Message) -> None:
        body = json.dumps(veiled(json.loads(self.body)), ensure_ascii=False).encode() if self.body else b""
        MutableHeaders(scope=start)["content-length"] = str(len(body))
        await self.send(start)
        await self.send({"type": "http.response.body", "body": body})


def _is_json(start: Message) -> bool:
    return Headers(raw=start["headers"]).get("content-type", "").startswith("application/json")
