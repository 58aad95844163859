"""An ordinary code base and seventy steps that it takes: on stock Celery and on Celeriac, by the app's class alone.

code        its tasks, settings and signals
step        what a step is
calls       declarations, calls, signals, failures, retries, limits
operations  workflows, results, remote control, events, commands, beat, tests
__main__    takes them and prints each outcome
"""
