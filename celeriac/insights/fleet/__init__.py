"""The fleet: workers, passes, beats and queues, what they can do, and the condition of Postgres below them."""
