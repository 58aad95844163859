"""Simulation of a fleet in virtual time: the passes' own code decides, and nothing sleeps.

day         a made-up day: many accounts, few of them large, one of them noisy, busy and quiet hours
replay      history replayed; roles that shared processes run together; the replay's error
machinery   processes and pace, read from history
backlog     a role's rows in Postgres (ready tasks, held slots), and one pass
turns       accounts with ready tasks, in rotation order
locks       lock keys: one task at a time
line        a role in the fleet: its backlog, passes and pace
queues      tickets on their way to a process
fleet       the events: arrivals, wake-ups, tickets, workers, polls, beat
fifo        the same arrivals, first come, first served
rounds      the promise of fairness, checked
waits       waits of tasks, in all and by account
report      the results together
"""
