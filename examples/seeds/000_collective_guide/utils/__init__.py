"""Options and readers of the evaluation."""
