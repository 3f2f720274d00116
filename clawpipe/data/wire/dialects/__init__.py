"""Dialects of chat: Responses and Anthropic messages, read into chat completions and written from them.

A request of a dialect becomes the request of a chat completion (`responses_in`, `messages_in`), and the answer of a chat
completion, whole or in chunks, becomes the answer of the dialect (`responses_out`, `messages_out`). So whoever answers chat
completions answers these, too, and what is recorded is a chat in any case.
"""
