"""The fields of Kubernetes' kinds, from one table: `kinds.txt`, read by `table`.

`types` finds fields of the wrong type with it, `unknown` finds unknown fields, and `api.protobuf` decodes bodies.
"""
