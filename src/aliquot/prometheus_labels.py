"""Values of labels in Prometheus' text format, for the server and for the agent, which goes without the library."""


def escaped(value: str) -> str:
    if value.isidentifier():
        return value
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
