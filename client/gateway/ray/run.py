"""Starts three nodes on this machine, streams a passage through them, and shuts them down.

    run.py BIN
"""

import contextlib
import json
import sys

import cluster

with contextlib.closing(cluster.Nodes(sys.argv[1])):
    print("three nodes run; each starts a generator", file=sys.stderr)
    cluster.deploy()
    body = {"prompt": "ROMEO:\n", "max_tokens": 100, "seed": 7, "stream": True}
    with cluster.ask("/v1/completions", body) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                print(json.loads(line[6:])["choices"][0]["text"], end="", flush=True)
    print()
