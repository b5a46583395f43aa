"""Connections whose peers may vanish."""

import socket

from aliquot.kube.sockets import notice_lost_peers


def test_accepted_connections_are_kept_alive_as_their_listening_socket_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        notice_lost_peers(listening)
        with socket.create_connection(listening.getsockname()), listening.accept()[0] as accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
