//! The program of the README.
#![expect(clippy::print_stdout, reason = "it is a program")]

use slotstream::{Engine, SessionOptions, Sizing, TextOptions};

fn main() -> Result<(), slotstream::Error> {
    // A folder with config.json, *.safetensors and tokenizer.json.
    let engine = Engine::builder("examples/models/tiny-moe")
        .sizing(Sizing::Share(0.3)) // or Slots(n), Memory(bytes), Auto
        .build()?;
    println!("{}", engine.plan()); // every byte, row by row

    let mut session = engine.session(SessionOptions::new())?; // greedy
    session.prefill_text("CHAPTER II\n\nMr. Darcy ")?;
    for piece in session.generate(&TextOptions::new(32))? {
        print!("{}", piece?.text);
    }
    println!("\nhit rate {:?}", session.metrics().decode.hit_rate());
    Ok(())
}
