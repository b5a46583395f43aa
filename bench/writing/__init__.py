"""What Aliquot writes to the API server: heartbeats of many agents in made-up time, and pods on an embedded cluster."""
