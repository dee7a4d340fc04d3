"""Measures conversations on three nodes of this machine, for simulate.py to be compared with.

    measure.py BIN       with the Python of client/gateway/ray; writes measured.json beside this file
"""

import concurrent.futures
import contextlib
import json
import os
import random
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../ray"))

import cluster  # noqa: E402

USERS = {"system_tokens": 10, "message_tokens": 30, "answer_tokens": 32, "turns": 8, "think_s": 0, "bytes_per_token": 3,
         "fixed": True}
CALIBRATE, COMPARE = 1, (4, 8, 16)
LENGTHS = 50, 200, 400, 800  # tokens of prompts, about
REPEATS = 5
SECONDS = 10  # of a count of users


def ask(messages, tokens):
    """Returns the times of an answer's tokens from its begin, its text, and the prompt's tokens and those cached."""
    body = {"messages": messages, "max_tokens": tokens, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}
    begin, times, said, usage = time.monotonic(), [], "", None
    with cluster.ask("/v1/chat/completions", body) as answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            usage = event["usage"] or usage
            if event["choices"] and event["choices"][0]["delta"].get("content"):
                times.append(time.monotonic() - begin)
                said += event["choices"][0]["delta"]["content"]
    return times, said, usage


def words(draw, tokens):
    return " ".join(f"{draw.randrange(100, 1000)}" for _ in range(tokens // 4))


def converse(n, until):
    """Has one user converse, and returns (time to the first token, times between tokens, usage) of each request."""
    draw, all = random.Random(), []
    while time.monotonic() < until:
        messages = []
        for _ in range(USERS["turns"]):
            messages.append({"role": "user", "content": words(draw, USERS["message_tokens"])})
            times, said, usage = ask(messages, USERS["answer_tokens"])
            all.append((times[0], [b - a for a, b in zip(times, times[1:])], usage))
            messages.append({"role": "assistant", "content": said})
            if time.monotonic() > until:
                break
    return all


def processor_s():
    """Returns the processor time of this process and of all nodes."""
    ticks = 0
    for pid in cluster.descendants(os.getpid()):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            ticks += sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def figures(count):
    begin, used = time.monotonic(), processor_s()
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        requests = [r for one in pool.map(lambda n: converse(n, begin + SECONDS), range(count)) for r in one]
    seconds, used = time.monotonic() - begin, processor_s() - used
    ttft, itl = [r[0] * 1e3 for r in requests], [gap * 1e3 for r in requests for gap in r[1]]
    prompt, cached = sum(r[2]["prompt_tokens"] for r in requests), sum(
        r[2]["prompt_tokens_details"]["cached_tokens"] for r in requests)
    return {"processors": used / seconds, "ttft_p50_ms": statistics.median(ttft), "ttft_p95_ms": statistics.quantiles(ttft, n=20)[-1],
            "itl_mean_ms": statistics.mean(itl), "itl_p95_ms": statistics.quantiles(itl, n=20)[-1], "hits": cached / prompt,
            "prompt_tokens": prompt / len(requests),
            "tokens_per_s": sum(r[2]["completion_tokens"] for r in requests) / seconds,
            "requests_per_s": len(requests) / seconds}


def main():
    measured = {"users": USERS, "prefill_ms": [], "counts": {}}
    with contextlib.closing(cluster.Nodes(sys.argv[1])):
        cluster.deploy()
        figures(3)  # warm
        for length in LENGTHS:
            draw, times, tokens = random.Random(), [], 0
            for _ in range(REPEATS):
                first, _, usage = ask([{"role": "user", "content": words(draw, length)}], 2)
                times.append(first[0] * 1e3)
                tokens = usage["prompt_tokens"]
            measured["prefill_ms"].append([tokens, statistics.median(times)])
        for count in (CALIBRATE, *COMPARE):
            measured["counts"][str(count)] = figures(count)
            print(count, measured["counts"][str(count)], file=sys.stderr)
    with open(os.path.join(HERE, "measured.json"), "w", encoding="utf-8") as file:
        json.dump(measured, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
