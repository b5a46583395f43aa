"""Types of values that several keys have."""

from typing import Annotated

from msgspec import Meta

Seconds = Annotated[float, Meta(gt=0, le=86400)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Name = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=253, description="a valid name of a Kubernetes object"
    ),
]
OptionalName = Annotated[
    str,
    Meta(
        pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$",
        max_length=253,
        description="a valid name of a Kubernetes object",
    ),
]
Address = Annotated[str, Meta(description="an IP address or a host name")]
