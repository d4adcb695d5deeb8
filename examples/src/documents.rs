//! The code of the documents, compiled and run as documentation tests. They run in this package
//! because it may depend on everything and is not published, so it may look outside its folder.

#[doc = include_str!("../../README.md")]
struct Readme;

#[doc = include_str!("../../docs/embedding.md")]
struct Embedding;

#[doc = include_str!("../../docs/adding-a-policy.md")]
struct AddingAPolicy;
