"""`aliquot demo`: the embedded cluster, its machines and sample pods, and what the demo prints."""
