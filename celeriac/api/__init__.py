"""The HTTP API (the extra `api`): thin handlers over the engine's own functions, a module a group of endpoints.

    gate        outermost: tokens, limits, security headers
    callers     who asks, and which scope a handler needs
    problems    every error as an RFC 9457 document
    server      puts it together: `create(app)`

Importing this package needs no FastAPI; `celeriac.api.server` does.
"""
