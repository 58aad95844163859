"""Faults of Redis: emptied, gone, frozen, slow, full, spoilt, in error."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from pathlib import Path

import redis

from celeriac.dispatch.keys import ticket_key
from faults.members import must
from faults.of_processes import again_and_again
from faults.rounds import Fault
from faults.size import sized
from faults.stack import Stack
from faults.standby import Replica

#: Seconds something is away.
AWAY = 4.0

#: Queues whose keys are spoilt.
QUEUES = ("quick", "locked", "single", "tick")


def flushed(stack: Stack) -> None:
    """While tickets wait there: more long tasks than there are processes."""
    client = stack.redis()
    for _ in range(sized(3, 1)):
        stack.enqueue("long", 30, '{"seconds": 0.2}')
        must(lambda: client.llen(ticket_key("long")), 15.0, "tickets to wait in Redis")
        client.flushall()
        time.sleep(1.0)
    client.close()


def gone(stack: Stack) -> None:
    stack.valkey.stop()
    time.sleep(AWAY)
    stack.valkey.start()


def killed(stack: Stack) -> None:
    for _ in range(3):
        stack.valkey.kill()
        stack.valkey.start()
        time.sleep(1.0)


def failed_over(stack: Stack) -> None:
    """Killed, and a replica that has heard nearly all takes over at the same address."""
    replica = Replica(Path(tempfile.mkdtemp(prefix="replica-", dir=stack.folder)), stack.valkey)
    replica.start()
    stack.life.callback(replica.stop)
    must(replica.follows, 15.0, "the replica to follow")
    stack.valkey.kill()
    time.sleep(1.0)
    replica.promote()
    stack.hand_over(replica)


def frozen(stack: Stack) -> None:
    stack.valkey.pause()
    try:
        time.sleep(AWAY + 2)
    finally:
        stack.valkey.resume()


def slow(stack: Stack) -> None:
    stack.spoil("redis", "slow", seconds=0.2)
    time.sleep(AWAY)
    stack.spoil("redis", "pass")


def reset(stack: Stack) -> None:
    """A connection lives for some fifty pieces: what works goes by Postgres."""
    stack.spoil("redis", "reset", share=0.02, seconds=0.02)
    time.sleep(3 * AWAY)
    stack.spoil("redis", "pass")


def errors(stack: Stack) -> None:
    stack.spoil("redis", "errors")
    time.sleep(AWAY)
    stack.spoil("redis", "pass")


def cut(stack: Stack) -> None:
    again_and_again(lambda: stack.spoil("redis", "cut"))


def full(stack: Stack) -> None:
    client = stack.redis()
    client.config_set("maxmemory", 1)
    time.sleep(AWAY)
    client.config_set("maxmemory", 0)
    client.close()


def of_another_type(stack: Stack) -> None:
    client = stack.redis()

    def spoil() -> None:
        with suppress(redis.RedisError):
            for queue in QUEUES:
                client.set(ticket_key(queue), "a string")

    again_and_again(spoil)
    client.close()


FAULTS = [
    Fault("redis-flushed", "FLUSHALL while tickets wait in it", flushed, wipes=True),
    Fault("redis-gone", "Redis is stopped for 4 s and comes back empty", gone, wipes=True),
    Fault("redis-killed", "Redis is killed and comes back empty at once, three times", killed, wipes=True),
    Fault("redis-failed-over", "Redis is killed and its replica takes over a second later", failed_over, wipes=True),
    Fault("redis-frozen", "Redis is frozen for 6 s: connections stay, nothing answers", frozen),
    Fault("redis-slow", "each answer of Redis, and each command, comes 200 ms late", slow),
    Fault("redis-cut", "all connections to Redis are cut every 0.4 s", cut),
    Fault("redis-reset", "of 50 answers and commands of Redis one resets its connection, and all come late", reset),
    Fault("redis-full", "Redis is out of memory (maxmemory) for 4 s", full),
    Fault("redis-errors", "Redis answers every command with an error for 4 s", errors),
    Fault("redis-wrong-type", "the keys of queues are strings, again and again", of_another_type),
]
