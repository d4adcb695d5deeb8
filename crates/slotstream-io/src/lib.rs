//! Readers and the lane queue: moves the bytes of an extent into a landing place
