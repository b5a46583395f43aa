"""gRPC over unix sockets, as kubelet and container runtimes speak it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from aliquot.errors import BadConfig

if TYPE_CHECKING:  # these are generic for the type checker only
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]

_Request = TypeVar("_Request", bound=Message)
_Answer = TypeVar("_Answer", bound=Message)

_OPTIONS = (
    # by default grpcio sends the socket's path as authority, which Go servers refuse
    ("grpc.default_authority", "localhost"),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # kubelet and the runtime list what users have written, which may be more than the usual 4 MiB
    ("grpc.max_receive_message_length", -1),
)


@asynccontextmanager
async def channel(socket: Path) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS) as opened:
        yield opened


async def call(
    opened: grpc.aio.Channel, method: str, request: Message, answer: type[_Answer], *, timeout: float | None = 10.0
) -> _Answer:
    """One unary call of `/package.Service/Method`. Raises grpc.aio.AioRpcError."""
    serialize = type(request).SerializeToString
    rpc = opened.unary_unary(method, request_serializer=serialize, response_deserializer=answer.FromString)
    result: _Answer = await rpc(request, timeout=timeout)
    return result


def unary(handler: Callable[[_Request, Context], Awaitable[Message]], request: type[_Request]) -> Handler:
    return grpc.unary_unary_rpc_method_handler(
        handler, request_deserializer=request.FromString, response_serializer=_serialize
    )


def streaming(
    handler: Callable[[_Request, Context], AsyncIterator[Message]],
    request: type[_Request],
) -> Handler:
    return grpc.unary_stream_rpc_method_handler(
        handler, request_deserializer=request.FromString, response_serializer=_serialize
    )


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def server(service: str, methods: dict[str, Handler], socket: Path) -> grpc.aio.Server:
    """A server of one service on a socket. It replaces the file that a dead server left there. Raises BadConfig."""
    made = grpc.aio.server()
    made.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    try:
        socket.unlink(missing_ok=True)
        made.add_insecure_port(f"unix:{socket}")
    except (OSError, RuntimeError) as error:
        raise BadConfig(f"cannot listen on {socket}: does its folder exist, and is the path short enough?") from error
    return made
