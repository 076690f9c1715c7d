"""redis-py's Lock, pottery's Redlock on several nodes, kazoo's Lock on ZooKeeper, or python-consul, under the load that
load/src/lib.rs describes: worker.py URL."""

import atexit
import sys
import threading
import time

TTL_SECONDS = 30
now = time.monotonic_ns


def on_one(url):
    import redis

    client = redis.Redis.from_url(url)
    client.ping()
    return lambda name: client.lock(name, timeout=TTL_SECONDS)


def on_nodes(url):
    import pottery
    import redis

    hosts = url.removeprefix("redlock://").split(",")
    masters = {redis.Redis.from_url(f"redis://{host}") for host in hosts}
    return lambda name: Pottery(pottery.Redlock(key=name, masters=masters, auto_release_time=TTL_SECONDS))


class Pottery:
    """pottery's Redlock with the names that redis-py's Lock has."""

    def __init__(self, lock):
        self.lock = lock

    def acquire(self, blocking_timeout=None):
        return self.lock.acquire(timeout=-1 if blocking_timeout is None else blocking_timeout)

    def release(self):
        self.lock.release()


def on_zookeeper(url):
    from kazoo.client import KazooClient

    client = KazooClient(hosts=url.removeprefix("zookeeper://"), timeout=TTL_SECONDS)
    client.start()
    atexit.register(client.stop)
    mine = threading.local()

    def lock_of(name):
        # One for each thread is used again, as it looks for its parent but once.
        if name not in mine.__dict__:
            mine.__dict__[name] = Kazoo(client.Lock(f"/{name}", "peer"))
        return mine.__dict__[name]

    return lock_of


class Kazoo:
    """kazoo's Lock with the names that redis-py's Lock has."""

    def __init__(self, lock):
        from kazoo.exceptions import LockTimeout

        self.lock, self.timeout = lock, LockTimeout

    def acquire(self, blocking_timeout=None):
        try:
            return self.lock.acquire(timeout=blocking_timeout)
        except self.timeout:
            return False

    def release(self):
        self.lock.release()


def on_consul(url):
    import consul

    host, port = url.removeprefix("consul://").split(":")
    seats = []

    def seat():
        # Sessions are ready, like everybody's; one has a lock again and again, so each contender has its own.
        if seats:
            return seats.pop()
        client = consul.Consul(host=host, port=int(port))
        ttl = 20 * TTL_SECONDS
        session = client.session.create(name="peer", ttl=ttl, lock_delay=0, checks=[])
        atexit.register(client.session.destroy, session)
        return client, session

    return lambda name: PythonConsul(f"{name}/python", seat, seats)


class PythonConsul:
    """A lock of what python-consul has: an acquisition for a session, and a blocking query to wait."""

    def __init__(self, key, seat, seats):
        self.key, self.seat, self.seats = key, seat, seats

    def acquire(self, blocking_timeout=None):
        self.client, self.session = self.seat()
        end = None if blocking_timeout is None else time.monotonic() + blocking_timeout
        while not self.client.kv.put(self.key, "peer", acquire=self.session):
            left = 60 if end is None else min(end - time.monotonic(), 60)
            if left <= 0:
                self.seats.append((self.client, self.session))
                return False
            index, entry = self.client.kv.get(self.key)
            if entry and "Session" in entry:
                self.client.kv.get(self.key, index=index, wait=f"{int(left * 1000) + 1}ms")
        return True

    def release(self):
        if not self.client.kv.put(self.key, "peer", release=self.session):
            raise RuntimeError(f"{self.key} was not held")
        self.seats.append((self.client, self.session))


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
    stores = {"redis": on_one, "redlock": on_nodes, "zookeeper": on_zookeeper, "consul": on_consul}
    lock_of = stores[url.partition(":")[0]](url)
    print("ready", flush=True)
    for line in sys.stdin:
        verb, *numbers = line.split()
        work = {"pairs": pairs, "contend": contend}[verb]
        print(*work(lock_of, *map(int, numbers)), flush=True)


main()
