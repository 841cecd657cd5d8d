"""The DistributedStrategy: settings, their checks, files and pages; what workers must agree on."""
