"""Alerts: what is watched, what fires, and who is notified.

rules      what is watched: the list behind the page of alerts and Prometheus' rules as well
measure    the values, read in SQL at a cost that does not follow the history
judgement  what is wrong now, the worst first: the same for doctor, status, overview and alerts
record     what fires, in SQL: since when, and the messages to send
review     a check of all rules: by beat's sweep, or, if none comes in time, by a worker or an API server
deliver    a webhook, a mail
"""

from celeriac.alerts.rules import Rule

__all__ = ["Rule"]
