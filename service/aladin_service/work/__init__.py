"""The work behind the HTTP service: jobs, and workers that run them off the event loop."""
