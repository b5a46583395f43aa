"""Foreign errors are told in plain words."""

import errno
import socket
import ssl

import pytest
import yaml

from aliquot.plain import why


def of_yaml(text: str) -> yaml.YAMLError:
    with pytest.raises(yaml.YAMLError) as raised:
        yaml.safe_load(text)
    return raised.value


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(FileNotFoundError(errno.ENOENT, "No such file or directory", "/f"), "no such file", id="no file"),
        pytest.param(PermissionError(errno.EACCES, "Permission denied", "/f"), "permission denied", id="no right"),
        pytest.param(
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 9)"),
            "connection refused",
            id="asyncio's own sentence",
        ),
        pytest.param(
            socket.gaierror(-2, "Name or service not known"), "name or service not known", id="no such machine"
        ),
        pytest.param(ssl.SSLError(1, "[SSL] PEM lib"), "[SSL] PEM lib", id="a certificate"),
        pytest.param(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), "it is not UTF-8 text", id="no text"),
        pytest.param(KeyError("server"), "server is missing", id="a missing key"),
        pytest.param(of_yaml("a: 1\nb: ["), "line 2: expected the node content, but found '<stream end>'", id="YAML"),
        pytest.param(of_yaml("a\0"), "unacceptable character #x0000: special characters are not allowed", id="bytes"),
        pytest.param(TimeoutError(), "TimeoutError", id="no text at all"),
    ],
)
def test_what_the_error_says_is_said_without_pythons_names(error: Exception, text: str) -> None:
    assert why(error) == text
