"""The parent process: it opens, forks, watches, and ends. It serves nothing itself.

**Why it is plain.** A fork copies one thread and every lock as it is. The parent may have to fork
at any time, so it has no thread, no Trio, no grpcio, and no library that might start a thread
behind its back. It sleeps in one ``poll`` on a signal pipe and one pipe per worker.

**What it owns.** The listening sockets (:mod:`gateway.net.sockets`): a worker that dies leaves its
queue of connections to its successor. The shared memory: a dead worker's row is cleared, or its
streams would count as in flight for ever. The signals: workers ignore SIGINT, SIGHUP and SIGUSR1,
which a terminal or ``kill`` may send to the whole process group, and obey SIGTERM alone.

**A slot** is a worker's place: its index, its sockets, its row. Processes come and go in it::

    state     | input                         | action                          | next state
    ----------+-------------------------------+---------------------------------+-----------
    empty     | start, or its time has come   | fork                            | starting
    starting  | "1" in its pipe               | announce when it is the last    | ready
    starting  | death, at the first start     | tell why, stop all, exit code 1 | empty
    starting  | death, later                  | clear row, wait longer          | empty
    ready     | death                         | clear row, wait                 | empty
    any       | SIGTERM or SIGINT to parent   | SIGTERM, close listeners        | stopping
    stopping  | death                         | the last one ends the parent    | empty
    stopping  | the time is up                | SIGKILL, exit code 1            | stopping

**The pipe of a worker** carries ``1`` when it accepts, and ``!`` with one line that names the
cause when it fails; the parent alone prints, so that eight workers that can't read one certificate
say so once. A worker whose parent is killed gets SIGTERM from the kernel (PR_SET_PDEATHSIG).

Exit codes: 0 done, 1 failed at the start or while running, or a worker had to be killed.
"""

from __future__ import annotations

from gateway.supervisor.child import WorkerMain
from gateway.supervisor.parent import run

__all__ = ["WorkerMain", "run"]
