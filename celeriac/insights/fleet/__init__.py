"""The fleet: workers, passes, beats and queues, what they can do, and the condition of what they stand on."""
