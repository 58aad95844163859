"""The HTTP API (the extra `api`): thin handlers over the engine's own functions, a module for each group of endpoints.

    listener    how many connections may wait to be accepted
    protocol    strict HTTP/1.1, and how long a request may take to arrive
    gate        tokens, limits, security headers, before any route is looked up
    turns       how many requests of a token, and at an endpoint, are worked on at once
    paging      how every list is read page by page
    callers     the caller, and the scope that a handler needs
    problems    every error as an RFC 9457 document
    paths       `/api/v1` is `/api`; escaped slashes
    examples    an example for each body and each answer in the OpenAPI document
    server      puts it together: `create(app)`

Importing this package needs no FastAPI; `celeriac.api.server` does.
"""
