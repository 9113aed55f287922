"""A small HTTP/2 backend on the ``h2`` library, one thread per connection.

``/bytes/N`` gives a body of N octets, ``/hang`` is never answered, any other path gives
:data:`BODY`. A request is answered when its END_STREAM has come, whatever its method.
"""

from __future__ import annotations

import socket
import threading

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

BODY = b"a body of some octets\n"


class Backend:
    """Listens on a free port of the loopback address from its making until :meth:`close`."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listening.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop accepting and end the connections."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        for connection in list(self._open):
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            self._open.add(accepted)
            threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _Connection(accepted).run()
        except (OSError, h2.exceptions.ProtocolError):
            pass
        finally:
            self._open.discard(accepted)
            accepted.close()


class _Connection:
    def __init__(self, accepted: socket.socket) -> None:
        self._socket = accepted
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding=None)
        )
        self._paths: dict[int, bytes] = {}
        self._bodies: dict[int, memoryview] = {}

    def run(self) -> None:
        codec = self._h2
        codec.local_settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] = 5_000
        codec.initiate_connection()
        self._socket.sendall(codec.data_to_send())
        while received := self._socket.recv(1 << 16):
            events = codec.receive_data(received)
            # Of a stream that was reset in the same read, nothing may be sent any more.
            gone = {e.stream_id for e in events if isinstance(e, h2.events.StreamReset)}
            for event in events:
                if getattr(event, "stream_id", None) not in gone:
                    self._handle(event)
            for stream in gone:
                self._paths.pop(stream, None)
                self._bodies.pop(stream, None)
            for stream in list(self._bodies):
                self._send_body(stream)
            self._socket.sendall(codec.data_to_send())

    def _handle(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RequestReceived():
                self._paths[event.stream_id] = dict(event.headers)[b":path"]
            case h2.events.DataReceived():
                length = event.flow_controlled_length
                if length:
                    self._h2.acknowledge_received_data(length, event.stream_id)
            case h2.events.StreamEnded():
                self._answer(event.stream_id)

    def _answer(self, stream: int) -> None:
        path = self._paths.pop(stream)
        if path == b"/hang":
            return
        body = bytes(int(path[7:])) if path.startswith(b"/bytes/") else BODY
        self._h2.send_headers(
            stream, [(b":status", b"200"), (b"content-length", b"%d" % len(body))]
        )
        self._bodies[stream] = memoryview(body)

    def _send_body(self, stream: int) -> None:
        body = self._bodies[stream]
        while body:
            room = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size)
            if room <= 0:
                self._bodies[stream] = body
                return
            self._h2.send_data(stream, bytes(body[:room]))
            body = body[room:]
        self._h2.end_stream(stream)
        del self._bodies[stream]
