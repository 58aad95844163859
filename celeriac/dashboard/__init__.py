"""The dashboard (the extra `dashboard`): pages over `insights`, buttons over the verbs of `operate`.

    app         puts it together: `create(app, throttle)`
    guard       who comes in, what they may, where a form was sent from, and the headers of every answer
    page        what a handler works on: one request, its links, its reading, its answer
    reading     insights, read only and bounded in time, one result for all who look at once
    forms       what a form sent
    acts        what a button did, told after the redirect
    words       states, durations and figures as people read them
    words.py and the templates in `pages` and `parts` have all the wording; `static` has one module and one style sheet

Importing this package needs neither FastAPI nor Jinja2; `celeriac.dashboard.app` does.
"""
