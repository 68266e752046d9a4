"""Photos and their regions: files, decoding within limits, and detected regions."""
