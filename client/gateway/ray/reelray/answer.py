"""An answer that goes on with the bytes of another replica after the first one was lost."""

import dataclasses
import re

# Two runs of one request differ in these alone: ids, times, and what was cached or guessed. A quote inside a text
# has a backslash before it, so none of them is found there.
_IDS = rb'"[a-z]+_?-?[A-Z2-7]{26}"|"created(?:_at)?":\d+'
_VOLATILE = _IDS + (rb'|"created_at":"[^"]*"|"completed_at":\d+|"\w+_duration":\d+'
                    rb'|"(?:cached|input|cache_read_input|accepted_prediction|rejected_prediction)_tokens":\d+')
IDS, VOLATILE = re.compile(_IDS), re.compile(_VOLATILE)
CHOICE = re.compile(rb'^data: [^\[]*"choices":\[\{"index":(\d+)')
SIGNS = b":", b"event: ping"  # of life: they come at any time


class Lost(Exception):
    """A replica, its gateway or its machine ended."""


class Other(Exception):
    """Another replica gives another answer than the client has."""


@dataclasses.dataclass
class Head:
    """What comes before an answer's bytes."""

    status: int
    headers: list
    identity: str  # of the replica: those of one identity give the same answers

    def separator(self) -> bytes:
        """Returns what ends an event of a stream; nothing for an answer that comes whole."""
        kind = dict(self.headers).get("content-type", "")
        return {"text/event-stream": b"\n\n", "application/x-ndjson": b"\n"}.get(kind.split(";")[0], b"")


class Answer:
    """The events that a client has, by choice: the choices of a request come side by side, in any order."""

    def __init__(self):
        self.sent = {}
        self.begin()

    def begin(self):
        """A replica begins to answer, with ids and times of its own."""
        self.seen, self.names = {choice: 0 for choice in self.sent}, {}

    def take(self, event: bytes) -> bytes:
        """Returns what the client gets of a replica's next event: nothing if it has it."""
        if event.startswith(SIGNS):
            return event
        found = CHOICE.match(event)
        choice = found and found[1]
        sent, n = self.sent.setdefault(choice, []), self.seen.get(choice, 0)
        self.seen[choice] = n + 1
        if n == len(sent):
            if self.names:
                event = IDS.sub(lambda own: self.names.get(own[0], own[0]), event)
            sent.append(event)
            return event
        if VOLATILE.sub(b"", event) != VOLATILE.sub(b"", sent[n]):
            raise Other
        self.names.update(zip(IDS.findall(event), IDS.findall(sent[n])))
        return b""

    def end(self):
        """The replica's answer has ended: the client has nothing that it lacks."""
        if any(self.seen[choice] < len(sent) for choice, sent in self.sent.items()):
            raise Other
