"""What tells of the service at work: its log, its traces, and what both know of a request."""
