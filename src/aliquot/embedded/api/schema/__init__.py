"""The fields of Kubernetes' kinds, from one table: `kinds.txt`, read by `table`.

`unknown` finds unknown fields with it, `api.protobuf` decodes bodies, and `api.apply` merges objects.
"""
