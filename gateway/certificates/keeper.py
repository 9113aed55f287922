"""Keeps certificates, ticket keys and staples of one worker as they should be."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

import trio
from OpenSSL import SSL

from gateway import config
from gateway.certificates.contexts import Contexts, describe, read_certificates
from gateway.certificates.staple import Stapler, now
from gateway.certificates.state import State
from gateway.config.tls import Tls
from gateway.errors import GatewayError
from gateway.telemetry import Counter, Row

TICK_S: Final = 1.0
"""How often files are looked at. A pair may be replaced one file after the other within it."""

EXPIRY_WARNING_S: Final = 14 * 86_400.0
"""A certificate that expires so soon is warned of, once a day."""

_DAY_S: Final = 86_400.0
_FIRST_LOOK_S: Final = 0.05


class Keeper:
    """What a worker runs beside its reactor when it serves TLS.

    ``log`` takes lines for a person. Worker 0 alone speaks of what all workers see alike.
    """

    def __init__(
        self,
        settings: config.Config,
        contexts: Contexts,
        row: Row,
        log: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._row = row
        self._monotonic = monotonic
        self._log = log if row.worker == 0 else _say_nothing
        self._contexts = contexts
        self._state_directory = settings.gateway.state_directory
        self._tables = {
            name: _Table(name, table, self._make_staplers)
            for name, table in contexts.tables.items()
        }
        self._warned_at = -_DAY_S
        if contexts.replays is not None:
            for context in contexts.by_name.values():
                context.accept_early = self._accept_early

    def _accept_early(self, random: bytes) -> bool:
        """Whether early data was not seen before, by any worker."""
        replays = self._contexts.replays
        if replays is not None and replays.first_time(random, self._monotonic()):
            return True
        self._row.add(Counter.EARLY_DATA_REPLAYED)
        return False

    def _make_staplers(self, name: str, table: Tls) -> list[Stapler]:
        staplers = []
        context = self._contexts.by_name[name]
        for entry, certificate in zip(table.certificates, context.certificates, strict=True):
            state = State(self._state_directory, certificate.fingerprint)
            if entry.ocsp == "fetch":
                try:
                    state.prepare()
                except OSError as error:
                    raise GatewayError(
                        f"gateway.state_directory {self._state_directory}: {error.strerror}"
                    ) from None
            label = f"tls.{name} {entry.certificate}"
            staplers.append(Stapler(label, entry, certificate, state, self._row.add, self._log))
        return staplers

    async def prepare(self) -> None:
        """Get the first staples, within ``ocsp_wait`` of each table."""
        async with trio.open_nursery() as nursery:
            for table in self._tables.values():
                nursery.start_soon(self._first_staples, table)
        self._measure()

    async def _first_staples(self, table: _Table) -> None:
        with trio.move_on_after(table.settings.ocsp_wait_s):
            async with trio.open_nursery() as nursery:
                for stapler in table.staplers:
                    nursery.start_soon(self._first_staple, stapler)

    async def _first_staple(self, stapler: Stapler) -> None:
        if stapler.tick() and not stapler.stapled:
            await stapler.fetch()
        # Another worker may be asking: what it gets appears on disk.
        while stapler.url and not stapler.stapled and not stapler.revoked and stapler.unknown():
            await trio.sleep(_FIRST_LOOK_S)
            stapler.tick()

    async def run(self) -> None:
        """Until cancelled: look at everything once a second."""
        async with trio.open_nursery() as nursery:
            while True:
                for name, table in self._tables.items():
                    self._rotate(name, table)
                    self._reload(name, table)
                    for stapler in table.staplers:
                        if stapler.tick():
                            nursery.start_soon(stapler.fetch)
                self._measure()
                await trio.sleep(self._until_next())

    def _until_next(self) -> float:
        """A tick, or less if a ticket key's time is over before."""
        clock = self._monotonic()
        return max(min([TICK_S, *(table.rotate_at - clock for table in self._tables.values())]), 0)

    def _rotate(self, name: str, table: _Table) -> None:
        context = self._contexts.by_name[name]
        was_alone = context.alone
        table.rotate_at = context.rotate(self._monotonic())
        if context.alone and not was_alone:
            self._log(
                f"tls.{name}: the ticket keys made at the start are used up; from now on a session "
                "is resumed only by the worker that began it. Start the gateway again, or set "
                "ticket_generations higher"
            )

    def _reload(self, name: str, table: _Table) -> None:
        """Take over files that changed; what is broken is refused, and the old ones stay."""
        if not table.has_changed():
            return
        context = self._contexts.by_name[name]
        old = {certificate.fingerprint: certificate for certificate in context.certificates}
        try:
            fresh = read_certificates(table.settings)
            settings = self._contexts.settings_of(table.settings)
            # What did not change keeps its staple.
            merged = [old.get(certificate.fingerprint, certificate) for certificate in fresh]
            context.replace_certificates(merged, settings)
            table.staplers = self._make_staplers(name, table.settings)
        except (GatewayError, SSL.Error) as error:
            what = describe(error) if isinstance(error, SSL.Error) else str(error)
            self._row.add(Counter.CERTIFICATE_RELOAD_FAILED)
            self._log(f"tls.{name}: changed files are not taken over: {what}")
            return
        self._row.add(Counter.CERTIFICATES_RELOADED)
        self._log(f"tls.{name}: certificates read again")
        self._warned_at = -_DAY_S

    def _measure(self) -> None:
        """Set the gauges, which worker 0 has for all, and warn of what expires."""
        if self._row.worker:
            return
        staplers = [stapler for table in self._tables.values() for stapler in table.staplers]
        first = min(stapler.certificate.expires_at for stapler in staplers)
        counters = self._row.counters
        counters[Counter.CERTIFICATE_EXPIRES_AT] = int(first)
        staples = [stapler.staple for stapler in staplers if stapler.staple is not None]
        counters[Counter.OCSP_STAPLES] = len(staples)
        counters[Counter.OCSP_UPDATED_AT] = int(min((s.this_update for s in staples), default=0))
        counters[Counter.OCSP_EXPIRES_AT] = int(min((s.expires_at for s in staples), default=0))
        counters[Counter.OCSP_STAPLES_MISSING] = sum(
            stapler.wanted and not stapler.stapled for stapler in staplers
        )
        clock = self._monotonic()
        if clock - self._warned_at < _DAY_S:
            return
        self._warned_at = clock
        today = now().timestamp()
        for stapler in staplers:
            left = stapler.certificate.expires_at - today
            if left < 0:
                self._log(f"{stapler.label}: the certificate HAS EXPIRED {_days(-left)} ago")
            elif left < EXPIRY_WARNING_S:
                self._log(f"{stapler.label}: the certificate expires in {_days(left)}")


class _Table:
    """One ``[tls.NAME]`` and the files it names."""

    def __init__(
        self,
        name: str,
        settings: Tls,
        make_staplers: Callable[[str, Tls], list[Stapler]],
    ) -> None:
        self.settings = settings
        self.rotate_at = 0.0
        self.staplers = make_staplers(name, settings)
        self._files = [
            path
            for entry in settings.certificates
            for path in (entry.certificate, entry.private_key, entry.ocsp_issuer)
            if path is not None
        ]
        self._files += [path for path in (settings.client_ca, settings.client_crl) if path]
        self._read = self._seen = self._stamps()

    def has_changed(self) -> bool:
        """Whether the files changed, and have been the same for two looks since."""
        stamps = self._stamps()
        settled = stamps == self._seen
        self._seen = stamps
        if stamps == self._read or not settled:
            return False
        self._read = stamps
        return True

    def _stamps(self) -> list[tuple[int, int, int]]:
        return [_stamp(path) for path in self._files]


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_ino, found.st_size)


def _days(seconds: float) -> str:
    return f"{seconds / _DAY_S:.1f} days"


def _say_nothing(line: str) -> None:
    pass
