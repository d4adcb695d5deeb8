//! N-gram embedding rows: ids from tokens, batched reads, bounded cache
