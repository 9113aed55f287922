# Written by hand: the gRPC plugin of protoc makes no stubs.
from collections.abc import Iterator

import grpc

from gateway.demo.tokens_pb2 import Completion, Prompt, Summary, Token

class TokensStub:
    Complete: grpc.UnaryUnaryMultiCallable[Prompt, Completion]
    Generate: grpc.UnaryStreamMultiCallable[Prompt, Token]
    Collect: grpc.StreamUnaryMultiCallable[Token, Summary]
    Chat: grpc.StreamStreamMultiCallable[Prompt, Token]
    def __init__(self, channel: grpc.Channel) -> None: ...

class TokensServicer:
    def Complete(self, request: Prompt, context: grpc.ServicerContext) -> Completion: ...
    def Generate(self, request: Prompt, context: grpc.ServicerContext) -> Iterator[Token]: ...
    def Collect(
        self, request_iterator: Iterator[Token], context: grpc.ServicerContext
    ) -> Summary: ...
    def Chat(
        self, request_iterator: Iterator[Prompt], context: grpc.ServicerContext
    ) -> Iterator[Token]: ...

def add_TokensServicer_to_server(servicer: TokensServicer, server: grpc.Server) -> None: ...
