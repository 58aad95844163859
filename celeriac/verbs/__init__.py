"""What is done to tasks, a module a verb: the only places that write SQL about them.

    enqueue → select → claim → (publish) → start → (run) → settle
                ▲                                  │
                └── promote ◀── release, rescue ◀──┘

Each function takes a SQLAlchemy connection and leaves the transaction to its caller. Times are the database's.
"""
