"""Python's own ways to run beside: a pool of processes, a thread pool, asyncio with a queue, each with work under way."""

import asyncio
import concurrent.futures
import multiprocessing
import queue
import threading
import time

import w

COUNTS = dict.fromkeys(("process pool", "thread pool", "asyncio", "queue"), 0)


def square(n):
    time.sleep(0.02)
    return n * n


def pool(name, executor):
    with executor:
        n = 0
        while True:
            n += 1
            future = executor.submit(square, n)
            w.expect(name, future.result(timeout=120), n * n)
            COUNTS[name] = n


async def loop():
    box = asyncio.Queue()

    async def give():
        n = 0
        while True:
            n += 1
            await box.put(n)
            await asyncio.sleep(0.02)

    task = asyncio.create_task(give())
    while True:
        got = await box.get()
        w.expect("asyncio", got, COUNTS["asyncio"] + 1)
        COUNTS["asyncio"] = got
        if task.done():
            task.result()


def handed(box):
    while True:
        n = box.get()
        w.expect("queue", n, COUNTS["queue"] + 1)
        COUNTS["queue"] = n


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    box = queue.Queue(maxsize=3)
    processes = concurrent.futures.ProcessPoolExecutor(2, context)
    processes.submit(square, 1).result()  # forks while there is no other thread
    for target, arguments in ((pool, ("process pool", processes)), (pool, ("thread pool", concurrent.futures.ThreadPoolExecutor(4))), (handed, (box,))):
        threading.Thread(target=target, args=arguments, daemon=True).start()
    threading.Thread(target=lambda: asyncio.run(loop()), daemon=True).start()
    given = 0

    def step():
        global given
        given += 1
        box.put(given)
        return {}, dict(COUNTS)

    w.forever(step)
