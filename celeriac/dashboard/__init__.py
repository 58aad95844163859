"""The dashboard (the extra `dashboard`): pages over `insights`, buttons over the verbs of `operate`.

    app         puts it together: `create(app, throttle)`
    guard       sessions, permissions, the origin of forms, and the headers of every answer
    session     signing in and out
    page        a handler's page: one request, its links, its reading, its answer
    reading     insights, read only and bounded in time, one result for all viewers in the same second
    forms, acts values of forms and of queries; a button's action, and its report after the redirect
    errors      pages for errors
    words       states, durations and figures as people read them; `health`: a role's, in a word
    templates   the environment of `pages` and `parts`; `static` has one script and one style sheet

Each other module has the handlers of a page or two. Importing this package needs neither FastAPI nor Jinja2;
`celeriac.dashboard.app` does.
"""
