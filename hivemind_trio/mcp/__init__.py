"""MCP servers: operations as tools of coding agents. Its files import the SDK, so importers of them are lazy."""
