"""What fields Kubernetes' kinds have, from one table: `kinds.txt`, read by `table`.

From it come the answers to unknown fields (`unknown`), OpenAPI (`openapi`), and what protobuf means (`api.protobuf`).
"""
