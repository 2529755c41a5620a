"""huey's SqliteHuey: `python huey_peer.py DIRECTORY JOBS default|full|off`, one line of JSON on stdout."""

import importlib.metadata
import json
import os
import sys
import threading
import time

from huey import SqliteHuey

# How long a writer waits for the lock, in seconds: five unless told otherwise.
PATIENCE = 600
DIRECTORY, JOBS, DURABILITY = sys.argv[1], int(sys.argv[2]), sys.argv[3]
HEAD = '{"to":"someone@example.com","subject":"Your order","text":"'
PAYLOAD = HEAD + "x" * (200 - len(HEAD) - 2) + '"}'


class Queue:
    def __init__(self, name):
        fsync = {"default": {}, "full": {"fsync": True}, "off": {"fsync": False}}[DURABILITY]
        self.huey = SqliteHuey(filename=os.path.join(DIRECTORY, name), timeout=PATIENCE, **fsync)
        self.done = 0
        self.all_done = threading.Event()

        # Called by one thread only, after the job's row is gone.
        @self.huey.task()
        def handle(payload):
            json.loads(payload)
            self.done += 1
            if self.done == JOBS:
                self.all_done.set()

        self.handle = handle

    def pragma(self, name):
        return self.huey.storage.conn.execute("pragma " + name).fetchone()[0]

    def enqueue(self):
        for _ in range(JOBS):
            self.handle(PAYLOAD)

    def work(self):
        consumer = self.huey.create_consumer(workers=1, worker_type="thread", periodic=False)
        consumer.start()
        return consumer


def seconds(begun):
    return time.perf_counter() - begun


apart = Queue("apart.db")
settings = apart.pragma("journal_mode"), apart.pragma("synchronous")
begun = time.perf_counter()
apart.enqueue()
enqueueing = seconds(begun)
begun = time.perf_counter()
consumer = apart.work()
apart.all_done.wait()
processing = seconds(begun)
consumer.stop(graceful=True)

together = Queue("together.db")
begun = time.perf_counter()
consumer = together.work()
together.enqueue()
together.all_done.wait()
both = seconds(begun)
consumer.stop(graceful=True)

print(
    json.dumps(
        {
            "peer": "huey",
            "version": importlib.metadata.version("huey"),
            "durability": DURABILITY,
            "journal_mode": settings[0],
            "synchronous": ["off", "normal", "full", "extra"][settings[1]],
            "leases": False,
            "sandbox": False,
            "enqueue_per_second": round(JOBS / enqueueing),
            "process_per_second": round(JOBS / processing),
            "end_to_end_per_second": round(JOBS / both),
        }
    )
)
