"""What libraries for agents write of their messages: LangChain and LangGraph, AutoGen, smolagents."""
