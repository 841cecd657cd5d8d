"""The side of a worker: connections, requests, rows, and embeddings on servers."""
