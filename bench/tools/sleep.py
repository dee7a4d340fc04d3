#!/usr/bin/env python3
"""Measures over a gateway's HTTP how long a model that slept takes to its first token, and two models in turn that leave
the GPU for each other. It prints each time, their median and the greatest beside a limit, in seconds.

usage: sleep.py woken URL DIR REEL NAME N LIMIT
       sleep.py turn URL DIR REEL NAME,NAME N LIMIT
"""

import http.client
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.parse

PROMPT = [100 + 7 * i for i in range(10)]  # random checkpoints have no tokenizer


def first_token(url, model):
    """Returns the seconds to the first token of a streamed answer, and the answer's token count."""
    to = urllib.parse.urlsplit(url)
    body = json.dumps({"model": model, "prompt": PROMPT, "max_tokens": 4, "seed": 1, "stream": True, "logprobs": 0,
                       "stream_options": {"include_usage": True}})
    begun = time.perf_counter()
    connection = http.client.HTTPConnection(to.hostname, to.port, timeout=120)
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    first, tokens = 0.0, 0
    if answer.status != 200:
        sys.exit(f"{model}: {answer.status} {answer.read().decode()}")
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if event.get("error") or event.get("model") != model:
            sys.exit(f"{model}: {line.decode()}")
        if not first and event.get("choices"):
            first = time.perf_counter() - begun
        tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
    if tokens == 0:
        sys.exit(f"{model}: no tokens")
    return first


def sleeps(directory, name):
    """Reports whether a generator has left the record of sleep."""
    try:
        with open(os.path.join(directory, name + ".state")) as record:
            return json.load(record)["state"] == "sleeping"
    except FileNotFoundError:
        return False


def report(what, times, limit):
    """Prints the times beside the limit."""
    print(what, " ".join(f"{t:.3f}" for t in times), f"median {statistics.median(times):.3f}",
          f"greatest {max(times):.3f} limit {limit}", "OK" if max(times) <= limit else "TOO SLOW", flush=True)


def woken(url, directory, reel, name, n):
    """Has the model sleep before each request. The first start, which reads its file, does not count."""
    first_token(url, name)
    times = []
    for _ in range(n):
        subprocess.run([reel, "sleep", "--socket", os.path.join(directory, name + ".sock")], check=True,
                       stdout=subprocess.DEVNULL)
        time.sleep(3)  # its process has ended, and its memory is free
        if not sleeps(directory, name):
            sys.exit(f"{name} does not sleep")
        times.append(first_token(url, name))
    return times


def turn(url, directory, reel, names, n):
    """Asks two models in turn, a second apart: the gateway's --stay is shorter. One of them sleeps at any time."""
    for name in names:
        first_token(url, name)
        time.sleep(1)
    times = []
    for i in range(n):
        name = names[i % 2]
        if not sleeps(directory, name):
            sys.exit(f"{name} is awake: both models fit, so nothing is measured")
        times.append(first_token(url, name))
        time.sleep(1)
    return times


def main(part, url, directory, reel, names, n, limit):
    if part == "woken":
        times = woken(url, directory, reel, names, int(n))
    else:
        times = turn(url, directory, reel, names.split(","), int(n))
    report(f"{part} {names}", times, float(limit))


if __name__ == "__main__":
    main(*sys.argv[1:])
