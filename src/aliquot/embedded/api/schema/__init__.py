"""The fields of Kubernetes' kinds, from one table: `kinds.txt`, read by `table`.

`unknown` finds unknown fields with it, and `api.protobuf` decodes bodies.
"""
