"""Takes the lock at PATH, says so, and gives it back when its input ends."""

import sys

from kazoo.client import KazooClient

hosts, path, patterns = sys.argv[1:4]
client = KazooClient(hosts=hosts, timeout=20)
client.start()
lock = client.Lock(path, "peer", extra_lock_patterns=[p for p in patterns.split(",") if p])
lock.acquire()
print("held", flush=True)
sys.stdin.readline()
lock.release()
client.stop()
print("free", flush=True)
