"""One worker as a process of its own: says its port, serves until SIGTERM, says what it counted.

Run with the number of the descriptor to write to when it accepts.
"""

from __future__ import annotations

import json
import socket
import sys

from gateway import config
from gateway.telemetry import SharedMemory
from gateway.worker import run

settings = config.Config(
    gateway=config.Gateway(drain_timeout_s=1.0),
    listeners=(config.Listener(address="127.0.0.1:0"),),
    routes=(config.Route(cluster="c"),),
    clusters={"c": config.Cluster(name="c", endpoints=())},
)
shared = SharedMemory(1, 4)
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
code = run(settings, [listening], shared, 0, int(sys.argv[1]))
print(json.dumps(shared.snapshot()), flush=True)
sys.exit(code)
