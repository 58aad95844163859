"""The dashboard (the extra `dashboard`): pages over `insights`, buttons over the verbs of `operate`.

    app         puts it together: `create(app, throttle)`
    guard       who comes in, what they may, where a form was sent from, and the headers of every answer
    session     signing in and out
    page        what a handler works on: one request, its links, its reading, its answer
    reading     insights, read only and bounded in time, one result for all who look at once
    forms, acts what a form sent; what a button did, told after the redirect
    errors      what went wrong, as a page
    words       states, durations and figures as people read them; `health`: a role's, in a word
    templates   the environment of `pages` and `parts`; `static` has one module and one style sheet

Each other module has the handlers of a page or two. Importing this package needs neither FastAPI nor Jinja2;
`celeriac.dashboard.app` does.
"""
