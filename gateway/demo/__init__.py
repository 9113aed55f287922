"""The demonstration: a token-streaming gRPC service behind the gateway, on one machine.

:mod:`~gateway.demo.backend` is the service, on grpcio; :mod:`~gateway.demo.plain` a plain HTTP/2
server and client on the ``h2`` library; :mod:`~gateway.demo.traffic` calls both through the
gateway and keeps what it saw; :mod:`~gateway.demo.run` starts everything and prints the tables.

``tokens_pb2*`` are made from ``protos/gateway/demo/v1/tokens.proto`` (``make protos``). Nothing
else in ``gateway`` imports this package, nor grpcio, nor ``h2``.
"""
