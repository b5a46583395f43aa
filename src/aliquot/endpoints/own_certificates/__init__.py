"""The query API's own CA and certificate: made, shared between replicas in a Secret, renewed, and made known to the API
server."""
