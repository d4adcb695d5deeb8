//! Conformance of eviction policies.
