"""Three nodes on this machine, for run.py and check.py."""

import contextlib
import functools
import json
import os
import signal
import time
import urllib.request

import ray
from ray import serve
from ray._private import services
from ray.cluster_utils import Cluster

from reelray.app import app

HERE = os.path.dirname(os.path.abspath(__file__))
TEMPLATE = os.path.join(HERE, "../../../generator/tiny/plain.jinja")
PORT = 8123
ATTEMPTS = 10


# The machine may be busy with other things.
PATIENT = {"RAY_worker_register_timeout_seconds": "600", "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "600",
           "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "600", "RAY_SERVE_QUEUE_LENGTH_RESPONSE_DEADLINE_S": "5"}


class Nodes:
    """A cluster of nodes that each offer two processors to replicas."""

    def __init__(self, bin: str, nodes: int = 3):
        self.bin = os.path.abspath(bin)
        self.environment = {"PYTHONPATH": HERE, "NODE_BIN": self.bin, "NODE_MODEL": "",
                            "RAY_USAGE_STATS_ENABLED": "0"} | PATIENT
        os.environ.update(self.environment)
        self.cluster = Cluster()
        self.add(resources={"num_cpus": 2, "include_dashboard": False})
        self.others = [self.add() for _ in range(nodes - 1)]
        ray.init(address=self.cluster.address, log_to_driver=False, logging_level="warning")
        patiently(serve.start, proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": PORT})

    def add(self, **variables):
        """Adds a node with further variables of its own."""
        resources = variables.pop("resources", {"num_cpus": 2})
        return self.cluster.add_node(env_vars=self.environment | variables, **resources)

    def kill(self, node):
        """Ends all processes of a node at once, as a power failure does."""
        raylet = [p.process.pid for p in node.all_processes["raylet"]][0]
        family = descendants(raylet)
        for pid in family:
            os.kill(pid, signal.SIGSTOP)  # so that none acts on the end of another
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.cluster.remove_node(node, allow_graceful=False)

    def close(self):
        serve.shutdown()
        ray.shutdown()
        self.cluster.shutdown()


def patiently(start, *arguments, **named):
    """Does what Ray gives a fixed time, which a busy machine may exceed."""
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(Exception):
            return start(*arguments, **named)
        time.sleep(1)
    return start(*arguments, **named)


# A node looks for itself in the cluster's list for 30 s.
services.get_node = functools.partial(patiently, services.get_node)


def descendants(pid: int) -> list[int]:
    """Returns a process with all that come from it."""
    children = {}
    for other in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{other}/stat", encoding="utf-8", errors="replace") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(other))
    family = [pid]
    for one in family:
        family += children.get(one, [])
    return family


def deploy(**arguments):
    """Starts or changes the application: the embedded model, a replica a node."""
    options = {"device": "host", "cpus": 2, "replicas": 3, "bin": "$NODE_BIN", "model": "$NODE_MODEL",
               "flags": f"--log-level warn --chat-template {TEMPLATE}"}
    return serve.run(app(options | arguments))


def ask(path: str, body: dict | None = None, headers: dict | None = None):
    """Returns the open answer of the proxy."""
    data = json.dumps(body).encode() if body is not None else None
    return urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, headers or {}))
