"""Model Context Protocol: the index as tools of an agent, over stdio and streamable HTTP."""
