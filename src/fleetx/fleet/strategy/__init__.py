"""The DistributedStrategy: settings, validation, files and docs; what workers must agree on."""
