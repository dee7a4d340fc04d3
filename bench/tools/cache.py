#!/usr/bin/env python3
"""Measures a generator's prefix cache and host tier, for cache_gpu.sh.

    python3 cache.py SOCKET NAME PREFIX[,PREFIX...]

With one prefix it measures the host tier too. With the prefix 0 it measures what rereading costs other requests.

It prints a line for each figure. Times are milliseconds by the generator's clock unless said otherwise. Prompts are
random token ids, so nothing but the prefix is found.
"""

import multiprocessing
import os
import random
import statistics
import sys
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "..", "protocol", "examples"))
from reel_client import Client  # noqa: E402

NEW = 16  # tokens behind the prefix
RUNS = 20
STREAM = 800  # tokens of a stream beside a load
LOADS = 12  # beside a stream


def ids(n):
    return [random.randrange(1000, 20000) for _ in range(n)]


def ask(reel, prompt, tokens=1, **fields):
    """Runs a request. Returns its done message and the arrival times of its tokens in seconds."""
    times = []
    for _ in reel.generate(prompt, max_tokens=tokens, ignore_eos=True, temperature=0, **fields):
        times.append(time.monotonic())
    return reel.done, times


def line(name, what, value, unit, samples):
    print("%-6s %-58s %10.2f %-5s %4d" % (name, what, value, unit, samples), flush=True)


def first_token(reel, name, prefix):
    """Measures the TTFT of NEW tokens behind a prefix on the device, which it returns, and of NEW tokens alone."""
    text = ids(prefix)
    ask(reel, text + ids(NEW))
    found, alone = [], []
    for _ in range(RUNS):
        done, _ = ask(reel, text + ids(NEW))
        if done["usage"]["cached_tokens"] < prefix // 16 * 16:
            sys.exit("only %d tokens of %d were found" % (done["usage"]["cached_tokens"], prefix))
        found.append(done["timing"]["ttft_ms"])
        alone.append(ask(reel, ids(NEW), cache="off")[0]["timing"]["ttft_ms"])
    line(name, "TTFT P50, %d new tokens behind %d on the device" % (NEW, prefix), statistics.median(found), "ms", RUNS)
    line(name, "TTFT P50, %d tokens alone" % NEW, statistics.median(alone), "ms", RUNS)
    return statistics.median(found)


def copy_rate():
    """The rate at which this machine copies 64 MiB of pinned memory to the GPU, in GB/s."""
    import torch

    host = torch.empty(64 << 20, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    rates = []
    for _ in range(20):
        begin.record()
        device.copy_(host, non_blocking=True)
        end.record()
        end.synchronize()
        rates.append(host.numel() / begin.elapsed_time(end) / 1e6)
    return statistics.median(rates)


def host_tier(reel, path, name, prefix, found):
    """Pushes a prefix out of the device, and measures its way back, alone and beside a stream.

    found is its TTFT in ms on the device. What a request takes longer is the time of loading.
    """
    kv = reel.status()["kv"]
    page_bytes, room = kv["bytes"] // (kv["pages"] + 1), kv["pages"] * kv["page_tokens"]
    rate = copy_rate()
    line(name, "copy rate of pinned memory, 64 MiB at a time", rate, "GB/s", 20)

    def away():
        text = ids(prefix)
        ask(reel, text + ids(NEW))
        for _ in range(room // prefix + 2):
            ask(reel, ids(prefix))
        time.sleep(0.2)  # as between turns: pages that give way are copied out meanwhile
        return text

    shares, times, quiet, loud = [], [], [], []
    for run in range(4 + LOADS):
        text = away()
        before = reel.status()["kv"].get("loaded", 0)
        if run < 4:
            done, _ = ask(reel, text + ids(NEW))
            seconds = done["timing"]["ttft_ms"] / 1e3
        else:
            gaps = stream(path, lambda: ask(reel, text + ids(NEW)), 2 * found / 1e3)
            quiet, loud = quiet + gaps[0], loud + gaps[1]
            continue
        pages = reel.status()["kv"].get("loaded", 0) - before
        if pages:
            times.append(seconds * 1e3)
            shares.append(pages * page_bytes / max(1e-9, seconds - found / 1e3) / 1e9 / rate)
    if not shares:
        sys.exit("no page was loaded from the host tier")
    line(name, "TTFT P50, %d tokens in the host tier" % prefix, statistics.median(times), "ms", len(times))
    line(name, "loading, as a share of the copy rate", 100 * statistics.median(shares), "%", len(shares))
    p50 = statistics.median(quiet)
    line(name, "ITL P50 of a stream (client's clock)", p50, "ms", len(quiet))
    for what, gaps in ("before", quiet), ("while", loud):
        p99 = sorted(gaps)[int(0.99 * (len(gaps) - 1))]
        line(name, "its ITL P99 %s pages load, as a share of P50" % what, 100 * p99 / p50, "%", len(gaps))


def stream(path, load, alone):
    """Runs load in the middle of a stream. Returns the gaps before and during load, in ms.

    The last seconds, alone, are those of the new tokens' prefill, which takes a step of its own in any case. Another
    process reads the stream: in one process it would wait while the other thread encodes its request.
    """
    mine, its = multiprocessing.Pipe()
    reader = multiprocessing.Process(target=read_stream, args=(path, its))
    reader.start()
    mine.recv()  # its first token
    time.sleep(0.5)
    begun = time.monotonic()
    load()
    ended = time.monotonic()
    time.sleep(0.1)
    mine.send("enough")
    times = mine.recv()
    reader.join()
    gaps = [(b, (b - a) * 1e3) for a, b in zip(times[20:], times[21:])]
    during = [(at, g) for at, g in gaps if begun <= at <= ended - alone]
    print("largest gaps while pages load, ms, and their end: " + ", ".join(
        "%.2f at %.1f" % (g, (at - begun) * 1e3) for at, g in sorted(during, key=lambda gap: -gap[1])[:5]) +
        "; the load took %.1f" % ((ended - begun) * 1e3), file=sys.stderr)
    return [g for at, g in gaps if at < begun], [g for _, g in during]


def read_stream(path, pipe):
    """Notes when each frame of a stream arrives, until it is told that it is enough, and sends the times.

    Frames are not decoded, which in Python takes a part of a step. A token is a frame.
    """
    times = []
    with Client(path) as reel:
        tokens = reel.generate(ids(10), max_tokens=STREAM, ignore_eos=True, temperature=0, cache="off")
        next(tokens)
        pipe.send("begun")
        while not pipe.poll() and reel._stream.read1(1 << 16):
            times.append(time.monotonic())
    pipe.send(times)


def rereading(reel, name):
    """TTFT of a request that meets rereading, beside that of one that does not."""
    met, alone = [], []
    before = reel.status()["steps"].get("rereads", 0)
    for run in range(2 * RUNS):
        ask(reel, ids(200), tokens=400)
        time.sleep(random.uniform(0.001, 0.012) if run % 2 else 0.5)
        done, _ = ask(reel, ids(NEW), cache="off")
        (met if run % 2 else alone).append(done["timing"]["ttft_ms"])
    if reel.status()["steps"].get("rereads", 0) - before < RUNS:
        sys.exit("fewer answers than half were reread")
    for what, times in ("alone", alone), ("beside rereading", met):
        line(name, "TTFT P50, %d tokens %s" % (NEW, what), statistics.median(times), "ms", RUNS)
        line(name, "the longest of them", max(times), "ms", RUNS)


def wait_for_tier(reel):
    """Waits until the host tier has stopped growing."""
    before = -1
    while (pages := reel.status()["kv"].get("host_pages", 0)) != before:
        before = pages
        time.sleep(2)


def main(path, name, prefixes):
    random.seed()
    deadline = time.monotonic() + 180
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.2)
    with Client(path, wait=180) as reel:
        wait_for_tier(reel)
        if prefixes == [0]:
            return rereading(reel, name)
        found = [first_token(reel, name, prefix) for prefix in prefixes]
        if len(prefixes) == 1:
            host_tier(reel, path, name, prefixes[0], found[0])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], [int(p) for p in sys.argv[3].split(",")])
