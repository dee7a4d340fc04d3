#!/usr/bin/env python3
"""Plays systemd's socket units on a machine without systemd: holds the socket DIR/NAME.sock of each model, starts its
generator when a connection waits there and none runs, and passes the socket as systemd does (LISTEN_FDS). It prints a
line for each start and end, and ends its generators at SIGTERM.

usage: activate.py DIR GENERATOR NAME=MODEL... -- FLAG...
"""

import os
import select
import signal
import socket
import sys
import time


class Unit:
    """A model's socket, and the generator that serves it while somebody asks."""

    def __init__(self, directory, name, command):
        self.name, self.command, self.pid = name, command, 0
        self.path = os.path.join(directory, name + ".sock")
        self.log = os.path.join(directory, name + ".log")
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(self.path)
        self.socket.listen(128)
        with open(os.path.join(directory, name + ".state"), "w") as record:
            record.write('{"state":"sleeping"}')  # as the socket unit does

    def start(self):
        """Starts the generator with the socket as descriptor 3."""
        self.pid = os.fork()
        if self.pid:
            print(f"{time.time():.3f} {self.name} starts", flush=True)
            return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        listening = os.dup(self.socket.fileno())  # not 3, which the next line fills
        os.dup2(log, 2)
        os.dup2(listening, 3)
        os.set_inheritable(3, True)
        os.closerange(4, 256)
        os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
        os.execv(self.command[0], self.command + ["--socket", self.path, "--name", self.name])


def main(directory, generator, *rest):
    at = rest.index("--")
    units = []
    for text in rest[:at]:
        name, _, model = text.partition("=")
        units.append(Unit(directory, name, [generator, "--model", model, *rest[at + 1:]]))

    def end(*_):
        for unit in units:
            if unit.pid:
                os.kill(unit.pid, signal.SIGTERM)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        waiting, _, _ = select.select([u.socket for u in units if not u.pid], [], [], 0.002)
        for unit in units:
            if unit.socket in waiting:
                unit.start()
        pid, status = os.waitpid(-1, os.WNOHANG) if any(u.pid for u in units) else (0, 0)
        for unit in units:
            if pid and unit.pid == pid:
                unit.pid = 0
                print(f"{time.time():.3f} {unit.name} ended with {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
