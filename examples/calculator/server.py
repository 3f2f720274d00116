"""An MCP server with two tools, as any agent may have it: `pip install 'clawpipe[mcp]'` brings the SDK."""

from mcp.server import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("calculator")
READS = ToolAnnotations(readOnlyHint=True)  # calls change nothing, so the episodes of a batch share one process


@server.tool(annotations=READS)
def multiply(a: float, b: float) -> str:
    """Multiply two numbers."""
    return f"{a * b:g}"


@server.tool(annotations=READS)
def add(a: float, b: float) -> str:
    """Add two numbers."""
    return f"{a + b:g}"


if __name__ == "__main__":
    server.run(transport="stdio")
