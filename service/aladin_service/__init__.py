"""The two user interfaces: the ``aladin`` command line and the HTTP service."""
