"""Readers of ImageNet and options, under the names of the documents."""
