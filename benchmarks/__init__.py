"""Side by side with the peers: what a request, a message and a connection cost.

``python -m benchmarks SCENARIO...`` starts the backends, the gateway and every peer that is
installed, all with one worker unless a scenario says otherwise. The proxies are pinned to one
core, backends and load generators (and this program) to the other: what a proxy costs is then its
own CPU time, which is stable where requests per second are not.

A *scenario* has *cases* (a shape of load). For each case every proxy is warmed up, then the rounds
go A B C A B C, so that what the machine does meanwhile falls on all of them alike. Each round
gives one *sample*, a set of named figures; what is reported is the median over the rounds with the
lowest and the highest.

- ``cpu_us``: user and system time of the whole process tree, in microseconds, per request or
  message. From the process's CPU clock, which counts nanoseconds and the threads that are gone.
- ``peak_mib``: the largest resident memory (VmHWM) since the round began, summed over the tree;
  pages that several processes share count for each of them.
- ``load``: how much of their core the backend and the client of streams used, in per cent. Near
  100 they may be what is slow.
- ``fds``: descriptors open in the whole tree at the end of a round.
- ``switches``: context switches, voluntary or not, per request.

Nothing in here imports the gateway, except ``micro/`` in its own child processes.
"""
