"""Endpoints: thin translations between the callers' protocols and the control plane."""
