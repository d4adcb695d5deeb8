//! Readers that fail on purpose, and conformance of readers.
