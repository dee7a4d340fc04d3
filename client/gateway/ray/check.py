"""Holds a cluster of three nodes on this machine to what README.md promises of one.

    check.py BIN OTHER [Cluster.TEST...]

BIN is the folder of the programs, OTHER one of another version. The machine may be slow: nothing is timed.
"""

import concurrent.futures
import contextlib
import http.client
import json
import os
import random
import re
import sys
import threading
import time
import unittest
import urllib.error

from ray import serve

import cluster

LONG = 300  # seconds that anything may take
OTHER_MODEL = os.path.join(cluster.HERE, "../../../generator/internal/model/testdata/llama-2")


def completion(prompt, tokens, seed=None, **fields):
    """Returns the events of a streamed completion."""
    body = {"prompt": prompt, "max_tokens": tokens, "stream": True, "ignore_eos": True} | fields
    if seed is not None:
        body["seed"] = seed
    with cluster.ask("/v1/completions", body) as answer:
        for line in answer:
            if line.startswith(b"data: "):
                yield line[6:].decode().strip()


def text(events):
    """Returns the text of a streamed completion, which must have ended as it should."""
    parts, ends = [], 0
    for event in events:
        if event == "[DONE]":
            ends += 1
            continue
        value = json.loads(event)
        if "error" in value:
            raise AssertionError(event)
        parts += [choice["text"] for choice in value["choices"]]
    if ends != 1:
        raise AssertionError(f"the stream ended without [DONE] after {''.join(parts)!r}")
    return "".join(parts)


def until(true, what):
    """Returns when true() holds."""
    begin = time.monotonic()
    while not true():
        if time.monotonic() - begin > LONG:
            raise AssertionError(f"within {LONG} s not: {what}")
        time.sleep(0.2)


def status():
    return serve.status().applications["default"]


def replicas():
    """Returns how many replicas of the generator run."""
    return status().deployments["Generator"].replica_states.get("RUNNING", 0)


class Cluster(unittest.TestCase):
    """The tests run in the order of their names, on one cluster."""

    @classmethod
    def setUpClass(cls):
        cls.nodes = cluster.Nodes(sys.argv[1])
        cls.addClassCleanup(cls.nodes.close)
        cluster.deploy()

    def test_1_listens_on_this_machine_alone(self):
        """The proxy is at 127.0.0.1, and there is no dashboard."""
        port, dashboard = f":{cluster.PORT:04X}", f":{8265:04X}"
        with open("/proc/net/tcp", encoding="ascii") as v4, open("/proc/net/tcp6", encoding="ascii") as v6:
            listening = [line.split()[1] for line in (*v4, *v6) if line.split()[3] == "0A"]
        self.assertEqual([one for one in listening if one.endswith((port, dashboard))], ["0100007F" + port])

    def test_2_conversations_find_their_prefix(self):
        """500 requests in conversations: over 80% of what they repeat is found in the cache of their replica."""
        counts, lock = {"repeated": 0, "cached": 0, "requests": 0}, threading.Lock()

        def converse(n):
            draw = random.Random(n)
            messages = [{"role": "user", "content": " ".join(f"word {draw.random():.6f}" for _ in range(6))}]
            before = 0
            for _ in range(10):
                body = {"messages": messages, "max_tokens": 4, "seed": n}
                with cluster.ask("/v1/chat/completions", body) as answer:
                    value = json.load(answer)
                usage, said = value["usage"], value["choices"][0]["message"]["content"]
                with lock:
                    counts["requests"] += 1
                    counts["repeated"] += before // 16 * 16
                    counts["cached"] += min(usage["prompt_tokens_details"]["cached_tokens"], before // 16 * 16)
                before = usage["prompt_tokens"]
                messages += [{"role": "assistant", "content": said}, {"role": "user", "content": f"and {draw.random():.4f}?"}]

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            list(pool.map(converse, range(50)))
        print(counts, f"hits {counts['cached'] / counts['repeated']:.1%}", file=sys.stderr)
        self.assertEqual(counts["requests"], 500)
        self.assertGreater(counts["cached"], 0.8 * counts["repeated"])

    def test_3_streams_survive_a_machine(self):
        """A node dies under 32 streams: each gives the text that it gives alone, with a seed of its own or without."""
        prompts = [f"ACT {n}\nKING:\n" for n in range(32)]
        alone = [text(completion(prompt, 250, seed=n)) for n, prompt in enumerate(prompts)]
        begun, ends = threading.Semaphore(0), []

        def streamed(n):
            def events():
                for i, event in enumerate(completion(prompts[n], 250, seed=n)):
                    if i == 20:
                        begun.release()
                    yield event
            return text(events())

        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            streams = [pool.submit(streamed, n) for n in range(32)]
            unseeded = [pool.submit(lambda: text(completion("HAMLET:\n", 250))) for _ in range(4)]
            several = [pool.submit(lambda: self.choices(250)) for _ in range(2)]
            for _ in range(32):
                self.assertTrue(begun.acquire(timeout=LONG))
            self.nodes.kill(self.nodes.others.pop())
            ends = [stream.result(LONG) for stream in streams]
            for stream in unseeded:
                self.assertTrue(stream.result(LONG))
            first, second = (stream.result(LONG) for stream in several)
        self.assertEqual(ends, alone)
        self.assertEqual(first, second)
        lost = self.losses()
        print(f"{lost} attempts were lost", file=sys.stderr)
        self.assertGreater(lost, 5)
        self.nodes.others.append(self.nodes.add())
        until(lambda: replicas() == 3, "three replicas again")

    @staticmethod
    def choices(tokens):
        """Returns the texts of four choices that come side by side."""
        texts = [""] * 4
        for event in completion("KING:\n", tokens // 4, seed=5, n=4):
            if event != "[DONE]":
                for choice in json.loads(event)["choices"]:
                    texts[choice["index"]] += choice["text"]
        return texts

    def losses(self):
        """Returns how often the log says that a replica was lost with a request."""
        count, folder = 0, os.path.join(self.nodes.cluster.head_node.get_logs_dir_path(), "serve")
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                count += len(re.findall("a replica was lost with a request", file.read()))
        return count

    def test_4_rolling_restart_loses_nothing(self):
        """All replicas restart, one after the other, while requests come."""
        stop, count = threading.Event(), [0] * 6
        want = text(completion("ROMEO:\n", 60, seed=1))

        def load(n):
            while not stop.is_set():
                self.assertEqual(text(completion("ROMEO:\n", 60, seed=1)), want)
                count[n] += 1

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            loads = [pool.submit(load, n) for n in range(6)]
            before = self.replica_ids()
            cluster.deploy(release="second")
            until(lambda: replicas() == 3 and not self.replica_ids() & before, "three other replicas")
            stop.set()
            for one in loads:
                one.result(LONG)
        print(f"{sum(count)} requests during the restart", file=sys.stderr)

    @staticmethod
    def replica_ids():
        """Returns the sockets of the gateways that run, which are the replicas'."""
        found = set()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    found.update(re.findall(rb"unix:(/tmp/reel\w+)/http", file.read()))
        return found

    def test_5_cancels_what_nobody_reads(self):
        connection = http.client.HTTPConnection("127.0.0.1", cluster.PORT)
        body = json.dumps({"prompt": "x", "max_tokens": 900, "stream": True, "ignore_eos": True})
        connection.request("POST", "/v1/completions", body)
        connection.getresponse().read(1)
        connection.sock.close()
        connection.close()
        until(lambda: self.running() == 0, "no request runs")

    @staticmethod
    def running():
        """Returns the requests of a replica, the one that is asked, in all of three scrapes."""
        total = 0
        for _ in range(9):
            with cluster.ask("/metrics") as answer:
                total += sum(map(float, re.findall(r"^vllm:num_requests_running\S* (\S+)$", answer.read().decode(), re.M)))
        return total

    def test_6_refuses_bad_nodes(self):
        """A node that would give other answers is refused, and the reason says what differs. If it is the first of its
        release, the others are, and the release before goes on beside it."""
        for variables, name, its in (
            ({"NODE_MODEL": OTHER_MODEL}, "model", "llama-2"),
            ({"NODE_BIN": os.path.abspath(sys.argv[2])}, "version", "0.0.0-other"),
        ):
            with self.subTest(name):
                serve.delete("default")
                cluster.deploy()
                node = self.nodes.add(**variables)
                with self.assertRaises(RuntimeError):
                    cluster.deploy(replicas=4)
                message = status().deployments["Generator"].message
                self.assertRegex(message, f"{name} ('{its}' instead of '|'[^']*' instead of '{its}')")
                if f"{name} '{its}' instead of" in message:
                    self.assertTrue(self.served(), "the others serve")
                else:  # the node answers some requests, in its own way: here it takes no text
                    until(self.served, "the release before serves")
                self.nodes.cluster.remove_node(node)

    @staticmethod
    def served():
        """Reports whether a prompt is answered."""
        try:
            with cluster.ask("/v1/completions", {"prompt": "x", "max_tokens": 3}) as answer:
                return answer.status == 200
        except urllib.error.HTTPError:
            return False

    def test_7_refuses_a_node_without_gpu(self):
        serve.delete("default")
        self.nodes.add(resources={"num_cpus": 1, "num_gpus": 1})
        with self.assertRaises(RuntimeError):
            cluster.deploy(device="cuda", replicas=1)
        self.assertRegex(status().deployments["Generator"].message, "reel-generator ended with 78: .*(GPU|cuda|driver)")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2, failfast=True)
