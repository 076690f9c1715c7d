"""redis-py's Lock, or pottery's Redlock on several nodes, under the load that load/src/lib.rs describes: worker.py URL."""

import sys
import threading
import time

import redis

TTL_SECONDS = 30
NODES = "redlock://"
now = time.monotonic_ns


def on_one(url):
    client = redis.Redis.from_url(url)
    client.ping()
    return lambda name: client.lock(name, timeout=TTL_SECONDS)


def on_nodes(url):
    import pottery

    masters = {redis.Redis.from_url(f"redis://{host}") for host in url.removeprefix(NODES).split(",")}
    return lambda name: Pottery(pottery.Redlock(key=name, masters=masters, auto_release_time=TTL_SECONDS))


class Pottery:
    """pottery's Redlock with the names that redis-py's Lock has."""

    def __init__(self, lock):
        self.lock = lock

    def acquire(self, blocking_timeout=None):
        return self.lock.acquire(timeout=-1 if blocking_timeout is None else blocking_timeout)

    def release(self):
        self.lock.release()


def pairs(lock_of, names, millis):
    begun = now()
    end = begun + millis * 1_000_000
    latencies = [[] for _ in range(names)]

    def one(at):
        while (asked := now()) < end:
            lock = lock_of(f"bench/pair/{at}")
            lock.acquire()
            lock.release()
            latencies[at].append(now() - asked)

    together(one, range(names))
    return [now() - begun] + [latency for each in latencies for latency in each]


def contend(lock_of, first, count, hold_ms, think_ms, millis, rest_ms):
    end = now() + millis * 1_000_000
    over = end + rest_ms * 1_000_000
    events = []

    def one(who):
        while (requested := now()) < end:
            lock = lock_of("bench/contended")
            held = lock.acquire(blocking_timeout=max(over - now(), 1_000_000) / 1e9)
            granted = now()
            if not held:
                events.extend([who, requested, granted, granted])
                return
            time.sleep(hold_ms / 1000)
            releasing = now()
            lock.release()
            events.extend([who, requested, granted, releasing])
            time.sleep(think_ms / 1000)

    together(one, range(first, first + count))
    return events


def together(one, numbers):
    threads = [threading.Thread(target=one, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    url = sys.argv[1]
    lock_of = (on_nodes if url.startswith(NODES) else on_one)(url)
    print("ready", flush=True)
    for line in sys.stdin:
        verb, *numbers = line.split()
        work = {"pairs": pairs, "contend": contend}[verb]
        print(*work(lock_of, *map(int, numbers)), flush=True)


main()
