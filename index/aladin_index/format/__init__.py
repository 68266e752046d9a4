"""Files of an index on disk: layout, manifest, arrays, locks and records."""
