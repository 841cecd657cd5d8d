"""The worker side: connections, requests, rows, and embeddings on servers."""
