"""`make demo`: 261 InstaSite builds for six accounts, through a real worker and a real beat, judged at the end.

plan        what is built
stage       where: servers, sandbox, worker, beat; all of it gone afterwards
witness     notes, from inside the worker, when a build begins and ends
evidence    reads what happened
verdicts    judges it (pure)
screen      tells it
"""
