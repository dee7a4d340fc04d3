#!/usr/bin/env python3
"""Measures a generator's prefix cache and host tier, for cache_gpu.sh.

    python3 cache.py SOCKET NAME PREFIX[,PREFIX...]

It prints a line for each figure. Times are milliseconds by the generator's clock unless said otherwise. Prompts are
random token ids, so nothing but the prefix is found.
"""

import os
import random
import statistics
import sys
import threading
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "..", "protocol", "examples"))
from reel_client import Client  # noqa: E402

NEW = 16  # tokens behind the prefix
RUNS = 20
STREAM = 800  # tokens of a stream beside a load


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
    """TTFT of NEW tokens behind a prefix on the device, and of NEW tokens alone."""
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


def host_tier(reel, other, name, prefix):
    """Pushes a prefix out of the device, and measures its way back, alone and beside a stream."""
    kv = reel.status()["kv"]
    page_bytes, room = kv["bytes"] // (kv["pages"] + 1), kv["pages"] * kv["page_tokens"]
    rate = copy_rate()
    line(name, "copy rate of pinned memory, 64 MiB at a time", rate, "GB/s", 20)

    def away():
        text = ids(prefix)
        ask(reel, text + ids(NEW))
        for _ in range(room // prefix + 2):
            ask(reel, ids(prefix))
        return text

    shares, times, quiet, loud = [], [], [], []
    for run in range(8):
        text = away()
        before = reel.status()["kv"].get("loaded", 0)
        if run < 4:
            done, _ = ask(reel, text + ids(NEW))
            seconds = done["timing"]["ttft_ms"] / 1e3
        else:
            gaps = stream(other, lambda: ask(reel, text + ids(NEW)), 2 * alone)
            quiet, loud = quiet + gaps[0], loud + gaps[1]
            continue
        pages = reel.status()["kv"].get("loaded", 0) - before
        alone = ask(reel, ids(NEW), cache="off")[0]["timing"]["ttft_ms"] / 1e3
        if pages:
            times.append(seconds * 1e3)
            shares.append(pages * page_bytes / max(1e-9, seconds - alone) / 1e9 / rate)
    if not shares:
        sys.exit("no page was loaded from the host tier")
    line(name, "TTFT P50, %d tokens in the host tier" % prefix, statistics.median(times), "ms", len(times))
    line(name, "loading, as a share of the copy rate", 100 * statistics.median(shares), "%", len(shares))
    p50, p99 = statistics.median(quiet), sorted(loud)[int(0.99 * (len(loud) - 1))]
    line(name, "ITL P50 of a stream (client's clock)", p50, "ms", len(quiet))
    line(name, "its ITL P99 while pages load, as a share of P50", 100 * p99 / p50, "%", len(loud))


def stream(reel, load, alone):
    """Runs load in the middle of a stream. Returns the gaps before and during load, in ms.

    The last seconds, alone, are those of the new tokens' prefill, which takes a step of its own in any case.
    """
    times, window = [], []

    def work():
        time.sleep(0.5)
        window.append(time.monotonic())
        load()
        window.append(time.monotonic())

    other = threading.Thread(target=work)
    other.start()
    for _ in reel.generate(ids(10), max_tokens=STREAM, ignore_eos=True, temperature=0, cache="off"):
        times.append(time.monotonic())
        if len(window) == 2:
            break
    other.join()
    gaps = [(b, (b - a) * 1e3) for a, b in zip(times[20:], times[21:])]
    loaded = window[1] - alone
    return [g for at, g in gaps if at < window[0]], [g for at, g in gaps if window[0] <= at <= loaded]


def main(path, name, prefixes):
    random.seed()
    deadline = time.monotonic() + 180
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.2)
    with Client(path, wait=180) as reel, Client(path) as other:
        for prefix in prefixes:
            first_token(reel, name, prefix)
        host_tier(reel, other, name, prefixes[0])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], [int(p) for p in sys.argv[3].split(",")])
