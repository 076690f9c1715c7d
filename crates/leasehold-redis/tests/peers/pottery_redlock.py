"""pottery's Redlock on the servers at these ports, told what to do line by line."""

import sys

import pottery
import redis

masters = {redis.Redis(host="127.0.0.1", port=int(port)) for port in sys.argv[1:]}
held = {}
print("ready", flush=True)
for line in sys.stdin:
    order, name, *rest = line.split()
    if order == "acquire":  # acquire NAME TTL_MS WAIT_MS
        ttl, wait = (int(ms) / 1000 for ms in rest)
        lock = pottery.Redlock(key=name, masters=masters, auto_release_time=ttl)
        granted = lock.acquire(timeout=wait) if wait else lock.acquire(blocking=False)
        if granted:
            held[name] = lock
        print("granted" if granted else "busy", flush=True)
    elif order == "release":
        try:
            held.pop(name).release()
            print("released", flush=True)
        except (KeyError, pottery.ReleaseUnlockedLock):
            print("gone", flush=True)
