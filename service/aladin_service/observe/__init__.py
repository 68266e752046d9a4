"""Observability of the service: log, traces, and the request data that both use."""
