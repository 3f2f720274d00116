"""Write a policy as one GGUF file, which llama.cpp and Ollama load."""
