"""What is done to tasks, a module a verb: the only places that write SQL about them.

    enqueue → select → claim → (publish) → start → (run) → settle
                ▲                                  │
                └── promote ◀── release, rescue ◀──┘

`steer` and `policies` are what operators do, each change with its row in `audit`.

Each function takes a SQLAlchemy connection and leaves the transaction to its caller. Times are the database's.
"""
