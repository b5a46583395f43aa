"""Which form of an object a client accepts."""

import pytest

from aliquot.apiserver.media import Form, accepted_form

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", Form.OBJECT),
        ("*/*", Form.OBJECT),
        ("application/*", Form.OBJECT),
        (TABLE, Form.TABLE),
        (f"{TABLE.replace('=v1', '=v1beta1')},{TABLE}", Form.TABLE),
        (f"{TABLE.replace('=v1', '=v1beta1')},application/json", Form.OBJECT),
        (f"application/json;q=0.5, {TABLE}", Form.TABLE),
        (f"application/json, {TABLE}", Form.OBJECT),
        (f"{PROTOBUF}, application/json", Form.OBJECT),
        (f"{PROTOBUF};as=Table, {TABLE}", Form.TABLE),
        (METADATA, Form.METADATA),
        (METADATA.replace("Metadata", "MetadataList"), None),
        (PROTOBUF, None),
        ("application/json;q=0", None),
        ("text/html;q=x", None),
    ],
)
def test_the_first_form_that_we_know(accept: str, form: Form | None) -> None:
    assert accepted_form(accept, is_list=False) is form
