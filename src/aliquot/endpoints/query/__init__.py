"""The query API: which pod has which card, on which node, as objects of the Kubernetes API.

Follow a request: `api` (HTTP) -> `paths` (what it asks for, and the right that it needs) -> `discovery` and `openapi`
for documents, or `resources` and the store of `aliquot.apiserver`, which `feed` fills with objects that `nodes` and
`pods` make of the control plane.
"""
