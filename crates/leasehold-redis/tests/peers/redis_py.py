"""redis-py's own Lock, told what to do line by line."""

import sys

import redis

client = redis.Redis(host="127.0.0.1", port=int(sys.argv[1]))
held = {}
print("ready", flush=True)
for line in sys.stdin:
    order, name, *rest = line.split()
    if order == "acquire":  # acquire NAME TTL_MS WAIT_MS
        lock = client.lock(name, timeout=int(rest[0]) / 1000, blocking_timeout=int(rest[1]) / 1000)
        if lock.acquire():
            held[name] = lock
            print("granted", flush=True)
        else:
            print("busy", flush=True)
    elif order == "release":
        try:
            held.pop(name).release()
            print("released", flush=True)
        except (KeyError, redis.exceptions.LockError):
            print("gone", flush=True)
