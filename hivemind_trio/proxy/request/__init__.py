"""Requests as the proxy reads them: head, caller, client, guard against web pages, and which headers go on."""
