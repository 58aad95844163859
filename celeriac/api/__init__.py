"""The HTTP API (the extra `api`): thin handlers over the engine's own functions, a module a group of endpoints.

    listener    how many may wait for the server to accept them
    protocol    HTTP/1.1, read strictly, and how long a request may take to arrive
    gate        outermost: tokens, limits, security headers
    turns       how many requests of a token, and at an endpoint, are worked on at once
    paging      how every list is read page by page
    callers     who asks, and which scope a handler needs
    problems    every error as an RFC 9457 document
    versions    `/api/v1` is `/api`
    examples    one for each body and each answer of the document
    server      puts it together: `create(app)`

Importing this package needs no FastAPI; `celeriac.api.server` does.
"""
