"""Who a process is in the job, and how it reaches the others."""
