//! What must hold for the repository as a whole: crate borders, documents, receipts, words.

mod documents;
mod files;
mod readmes;
mod workspace;
